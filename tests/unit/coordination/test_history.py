"""What is kept of a changefeed's history, and for how long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from changefeed.records.history import HistoryEntry, HistoryKind
from changefeed.records.requests import ChangefeedId
from coordination.etcd.protocol import Put
from coordination.fenced import FencedStore
from coordination.history import KEPT_AFTER_REMOVAL, MOST_ENTRIES, entry_ops, history_of, lease_history
from coordination.layout import Layout
from tests.memory_etcd import MemoryEtcd

FEED, LAYOUT, BEGIN = ChangefeedId("f"), Layout("test"), datetime(2026, 11, 28, tzinfo=UTC)


def _entry(number: int, kind: HistoryKind) -> HistoryEntry:
    return HistoryEntry(at=BEGIN + timedelta(seconds=number), kind=kind, action="pause", by="maria", after=str(number))


def test_states_that_change_all_the_time_hide_no_change_by_a_user() -> None:
    etcd = MemoryEtcd().connect()
    etcd.txn((), entry_ops(etcd, LAYOUT, FEED, _entry(0, HistoryKind.CHANGE), "a"))
    for number in range(1, MOST_ENTRIES + 50):
        etcd.txn((), entry_ops(etcd, LAYOUT, FEED, _entry(number, HistoryKind.STATE), "a"))
    first, *states = history_of(etcd, LAYOUT, FEED)
    assert first.kind is HistoryKind.CHANGE
    assert [entry.after for entry in states] == [str(number) for number in range(50, MOST_ENTRIES + 50)]


def test_entries_of_one_moment_by_two_writers_are_two() -> None:
    etcd = MemoryEtcd().connect()
    for salt in ("a", "b"):
        etcd.txn((), entry_ops(etcd, LAYOUT, FEED, _entry(0, HistoryKind.CHANGE), salt))
    assert len(history_of(etcd, LAYOUT, FEED)) == 2


def test_the_history_of_a_removed_changefeed_ends_with_its_lease() -> None:
    """Also if an owner dies in between, and the next one begins again."""
    server = MemoryEtcd()
    etcd = server.connect()
    etcd.txn((), [Put("/owner", b"")])
    owner = etcd.get("/owner")
    assert owner is not None
    store = FencedStore(etcd, key="/owner", epoch=owner.create_rev)
    lease_history(store, LAYOUT, FEED)
    for number in range(MOST_ENTRIES):
        etcd.txn((), entry_ops(etcd, LAYOUT, FEED, _entry(number, HistoryKind.CHANGE), "a"))
    for _ in range(2):
        lease_history(store, LAYOUT, FEED)
    found = etcd.range(LAYOUT.histories(FEED)).items
    assert len(found) == MOST_ENTRIES
    leases = {kv.lease for kv in found}
    [lease] = leases
    left = etcd.time_to_live(lease)
    assert left is not None
    assert timedelta() < left <= KEPT_AFTER_REMOVAL
    etcd.revoke(lease)
    assert history_of(etcd, LAYOUT, FEED) == []
