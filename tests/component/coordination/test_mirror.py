"""The mirror on a real etcd that restarts, hangs, or compacts revisions that the mirror has not read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from changefeed.errors import CoordinationUnavailable, OutcomeUnknown
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import Delete, EtcdConfig, Put
from coordination.fenced import FencedStore
from coordination.mirror import Mirror
from devstack.etcd.server import EtcdServer

SOON = timedelta(seconds=10)
PREFIX = "/s/"


@pytest.fixture
def follow() -> Iterator[Callable[[EtcdClient], Mirror]]:
    mirrors: list[Mirror] = []

    def start(client: EtcdClient) -> Mirror:
        mirrors.append(Mirror(client, PREFIX))
        mirrors[-1].start()
        mirrors[-1].at_least(1, SOON)
        return mirrors[-1]

    yield start
    for mirror in mirrors:
        mirror.stop()


def test_a_mirror_follows_an_etcd_that_restarts(
    own_etcd: EtcdServer, connect: Callable[[str], EtcdClient], follow: Callable[[EtcdClient], Mirror]
) -> None:
    mirror = follow(connect(own_etcd.endpoint))
    for round_ in range(2):
        rev = connect(own_etcd.endpoint).txn([], [Put(f"{PREFIX}a", str(round_).encode())]).revision
        kv = mirror.at_least(rev, SOON).get(f"{PREFIX}a")
        assert kv is not None
        assert kv.value == str(round_).encode()
        own_etcd.kill()
        own_etcd.start()
    rev = connect(own_etcd.endpoint).txn([], [Delete(f"{PREFIX}a")]).revision
    assert mirror.at_least(rev, SOON).get(f"{PREFIX}a") is None


def test_what_was_deleted_while_disconnected_and_then_compacted_is_gone(
    own_etcd: EtcdServer, connect: Callable[[str], EtcdClient], compact: Callable[[str, int], None]
) -> None:
    client = connect(own_etcd.endpoint)
    client.txn([], [Put(f"{PREFIX}a", b""), Put(f"{PREFIX}b", b"")])
    mirror = Mirror(client, PREFIX)
    mirror.poll(SOON)
    client.txn([], [Delete(f"{PREFIX}a")])
    last = client.txn([], [Put(f"{PREFIX}c", b"")]).revision
    compact(own_etcd.endpoint, last)
    assert mirror.poll(SOON)
    view = mirror.view()
    assert (view.revision, sorted(view.group(PREFIX))) == (last, [f"{PREFIX}b", f"{PREFIX}c"])
    mirror.stop()


def test_a_thousand_keys_are_seen_at_one_revision_while_transactions_rewrite_them(
    own_etcd: EtcdServer, connect: Callable[[str], EtcdClient], follow: Callable[[EtcdClient], Mirror]
) -> None:
    """Each transaction writes one value to ten keys. A view with two values in such a group of ten shows half a transaction."""
    client = connect(own_etcd.endpoint)

    def write(value: int) -> int:
        rev = 0
        for ten in range(100):
            rev = client.txn([], [Put(f"{PREFIX}{ten}/{n}", str(value).encode()) for n in range(10)]).revision
        return rev

    write(0)
    mirror = follow(connect(own_etcd.endpoint))
    torn: list[object] = []
    mirror.listen(lambda: torn.extend(_torn(mirror)))
    view = mirror.at_least(max(write(value) for value in (1, 2)), SOON)
    assert torn == []
    assert {kv.value for group in view.groups.values() for kv in group.values()} == {b"2"}
    assert sum(len(group) for group in view.groups.values()) == 1000


def _torn(mirror: Mirror) -> list[str]:
    view = mirror.view()
    return [name for name, group in view.groups.items() if len({kv.value for kv in group.values()}) > 1]


class ChattyEtcd(EtcdServer):
    """Sends watch progress ten times a second; the default of etcd is every ten minutes."""

    def command(self) -> list[str]:
        return [*super().command(), "--experimental-watch-progress-notify-interval", "100ms"]


def test_progress_moves_a_mirror_over_what_happened_elsewhere(
    tmp_path: Path, connect: Callable[[str], EtcdClient], follow: Callable[[EtcdClient], Mirror]
) -> None:
    with ChattyEtcd(tmp_path / "chatty", tmp_path / "chatty.log") as etcd:
        client = connect(etcd.endpoint)
        mirror = follow(client)
        elsewhere = client.txn([], [Put("/other", b"")]).revision
        assert mirror.at_least(elsewhere, SOON).revision >= elsewhere


def test_those_who_wait_for_a_revision_are_told_when_it_does_not_come(
    own_etcd: EtcdServer, connect: Callable[[str], EtcdClient], follow: Callable[[EtcdClient], Mirror]
) -> None:
    mirror = follow(connect(own_etcd.endpoint))
    own_etcd.kill()
    with pytest.raises(CoordinationUnavailable, match="last seen"):
        mirror.at_least(10_000, timedelta(seconds=1))


def test_a_stopped_mirror_lets_go_of_those_who_wait(
    own_etcd: EtcdServer, connect: Callable[[str], EtcdClient], follow: Callable[[EtcdClient], Mirror]
) -> None:
    mirror = follow(connect(own_etcd.endpoint))
    threading.Timer(0.2, mirror.stop).start()
    with pytest.raises(CoordinationUnavailable):
        mirror.at_least(10_000, timedelta(days=1))


def test_a_transaction_with_an_unknown_outcome_is_settled_and_seen(
    own_etcd: EtcdServer,
    connect: Callable[[str], EtcdClient],
    follow: Callable[[EtcdClient], Mirror],
    freeze: Callable[[EtcdServer], None],
) -> None:
    """A frozen etcd executes the requests it received once it resumes, long after the writer's deadline."""
    epoch = connect(own_etcd.endpoint).txn([], [Put(f"{PREFIX}own", b"me")]).revision
    mirror = follow(connect(own_etcd.endpoint))
    with EtcdClient(EtcdConfig(endpoints=(own_etcd.endpoint,), timeout=timedelta(seconds=1))) as client:
        store = FencedStore(client, key=f"{PREFIX}own", epoch=epoch)
        store.commit([Put(f"{PREFIX}a", b"0")])
        freeze(own_etcd)
        with pytest.raises(OutcomeUnknown):
            store.commit([Put(f"{PREFIX}a", b"1")])
        own_etcd.resume()
        settled = store.settle()
        kv = mirror.at_least(settled, SOON).get(f"{PREFIX}a")
        assert kv is not None
        written = store.commit([Put(f"{PREFIX}a", b"2")])
        assert kv.value in (b"0", b"1")
        kv = mirror.at_least(written, SOON).get(f"{PREFIX}a")
        assert kv is not None
        assert (kv.value, kv.mod_rev) == (b"2", written)
