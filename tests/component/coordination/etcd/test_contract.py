"""The contract of `Etcd`: the same cases run on the in-memory implementation and on a real server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest

from changefeed.errors import CoordinationUnavailable, FencedError, InvariantError
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import (
    Change,
    Committed,
    Compare,
    CreateRevIs,
    Delete,
    DeletePrefix,
    Etcd,
    HistoryCompacted,
    ModRevIs,
    Put,
    Refused,
    Watch,
    WatchUpdate,
)
from coordination.fenced import FencedStore
from tests.memory_etcd import MemoryEtcd
from tests.until import until

SOON = timedelta(seconds=5)
NOT_NOW = timedelta(milliseconds=100)


@dataclass(frozen=True)
class Bench:
    etcd: Etcd
    prefix: str
    compact: Callable[[int], None]
    let_expire: Callable[[int], object]

    def put(self, name: str, value: bytes = b"x", lease: int = 0) -> int:
        result = self.etcd.txn([], [Put(self.prefix + name, value, lease)])
        assert isinstance(result, Committed)
        return result.revision

    def names(self) -> list[str]:
        return [kv.key.removeprefix(self.prefix) for kv in self.etcd.range(self.prefix).items]


@pytest.fixture(params=["memory", "real"])
def bench(request: pytest.FixtureRequest, etcd_prefix: str) -> Bench:
    if request.param == "memory":
        server = MemoryEtcd()
        client = server.connect()

        def expire(lease: int) -> None:
            ttl = client.time_to_live(lease)
            assert ttl is not None
            server.advance(ttl)

        return Bench(client, etcd_prefix, server.compact, expire)
    endpoint = request.getfixturevalue("etcd_endpoint")
    real: EtcdClient = request.getfixturevalue("connect")(endpoint)
    compact = request.getfixturevalue("compact")
    return Bench(
        real,
        etcd_prefix,
        lambda revision: compact(endpoint, revision),
        lambda lease: until(lambda: real.time_to_live(lease) is None),
    )


def read_until_error(watch: Watch) -> Exception:
    with pytest.raises(CoordinationUnavailable) as caught:  # noqa: PT012 - the server chooses which update comes last
        while True:
            assert watch.next(SOON) is not None
    return caught.value


def test_a_key_carries_the_revisions_of_its_life_and_of_its_last_change(bench: Bench) -> None:
    created = bench.put("a", b"1")
    changed = bench.put("a", b"2")
    kv = bench.etcd.get(bench.prefix + "a")
    assert kv is not None
    assert (kv.value, kv.create_rev, kv.mod_rev) == (b"2", created, changed)


def test_a_key_deleted_and_put_again_begins_a_new_life(bench: Bench) -> None:
    first = bench.put("a")
    bench.etcd.txn([], [Delete(bench.prefix + "a")])
    again = bench.put("a")
    kv = bench.etcd.get(bench.prefix + "a")
    assert kv is not None
    assert kv.create_rev == again > first


def test_a_missing_key_is_none(bench: Bench) -> None:
    assert bench.etcd.get(bench.prefix + "nothing") is None


def test_a_range_is_in_key_order_and_ends_with_its_prefix(bench: Bench) -> None:
    for name in ("b/2", "b/10", "a", "b0", "bä"):
        bench.put(name)
    assert bench.names() == ["a", "b/10", "b/2", "b0", "bä"]
    assert len(bench.etcd.range(bench.prefix + "b/").items) == 2


def test_keys_are_told_without_their_values(bench: Bench) -> None:
    for name in ("b/2", "b/10", "a"):
        bench.put(name)
    assert list(bench.etcd.keys(bench.prefix + "b/")) == [bench.prefix + "b/10", bench.prefix + "b/2"]


def test_a_range_may_end_before_its_prefix_does(bench: Bench) -> None:
    for name in ("a", "b/1", "~", "~c"):
        bench.put(name)
    found = bench.etcd.range(bench.prefix, bench.prefix + "~")
    assert [kv.key.removeprefix(bench.prefix) for kv in found.items] == ["a", "b/1"]


def test_a_range_may_be_of_an_earlier_revision_until_that_is_compacted(bench: Bench) -> None:
    bench.put("a", b"1")
    then = bench.put("b", b"1")
    bench.etcd.txn([], [Put(bench.prefix + "a", b"2"), Delete(bench.prefix + "b"), Put(bench.prefix + "c", b"2")])
    last = bench.put("a", b"3")
    found = bench.etcd.range(bench.prefix, at_rev=then)
    assert found.revision == then
    assert {kv.key.removeprefix(bench.prefix): kv.value for kv in found.items} == {"a": b"1", "b": b"1"}
    bench.compact(last)
    with pytest.raises(HistoryCompacted):
        bench.etcd.range(bench.prefix, at_rev=then)
    assert [kv.value for kv in bench.etcd.range(bench.prefix, at_rev=last).items] == [b"3", b"2"]


def test_a_large_range_is_whole_and_of_one_revision(bench: Bench) -> None:
    last = 0
    for batch in range(25):
        result = bench.etcd.txn([], [Put(f"{bench.prefix}{batch:02}/{n:03}", b"x" * 50) for n in range(100)])
        last = result.revision
    snapshot = bench.etcd.range(bench.prefix)
    assert len(snapshot.items) == 2500
    assert snapshot.revision >= last


def test_a_transaction_writes_everything_at_one_revision(bench: Bench) -> None:
    bench.put("gone")
    result = bench.etcd.txn(
        [], [Put(bench.prefix + "a", b"1"), Put(bench.prefix + "b", b"2"), Delete(bench.prefix + "gone")]
    )
    items = bench.etcd.range(bench.prefix).items
    assert [(kv.value, kv.mod_rev) for kv in items] == [(b"1", result.revision), (b"2", result.revision)]


def test_a_refused_transaction_writes_nothing_and_says_what_it_found(bench: Bench) -> None:
    created = bench.put("a")
    compares: list[Compare] = [CreateRevIs(bench.prefix + "a", created), ModRevIs(bench.prefix + "b", 7)]
    result = bench.etcd.txn(compares, [Put(bench.prefix + "c", b"")])
    assert isinstance(result, Refused)
    found = result.found[bench.prefix + "a"]
    assert found is not None
    assert found.create_rev == created
    assert result.found[bench.prefix + "b"] is None
    assert bench.names() == ["a"]


@pytest.mark.parametrize("compare", [CreateRevIs, ModRevIs])
def test_a_compare_with_zero_holds_only_for_a_missing_key(bench: Bench, compare: type[CreateRevIs | ModRevIs]) -> None:
    absent = compare(bench.prefix + "a", 0)
    assert isinstance(bench.etcd.txn([absent], [Put(bench.prefix + "a", b"")]), Committed)
    assert isinstance(bench.etcd.txn([absent], [Put(bench.prefix + "a", b"")]), Refused)


def test_a_change_breaks_the_mod_revision_but_not_the_create_revision(bench: Bench) -> None:
    created = bench.put("a")
    bench.put("a")
    assert isinstance(bench.etcd.txn([ModRevIs(bench.prefix + "a", created)], []), Refused)
    assert isinstance(bench.etcd.txn([CreateRevIs(bench.prefix + "a", created)], []), Committed)


def test_a_prefix_is_deleted_in_one_revision(bench: Bench) -> None:
    for name in ("x/1", "x/2", "y"):
        last = bench.put(name)
    watch = bench.etcd.watch(bench.prefix, last + 1)
    bench.etcd.txn([], [DeletePrefix(bench.prefix + "x/")])
    update = watch.next(SOON)
    watch.close()
    assert update is not None
    assert {change.key.removeprefix(bench.prefix) for change in update.changes} == {"x/1", "x/2"}
    assert bench.names() == ["y"]


def test_more_than_fits_in_one_transaction_is_written_in_several(bench: Bench) -> None:
    store = FencedStore(bench.etcd, key=bench.prefix + "own", epoch=bench.put("own"))
    rev = store.commit_in_parts([Put(f"{bench.prefix}{n:03}", b"x" * 20_000) for n in range(250)])
    snapshot = bench.etcd.range(bench.prefix)
    assert len(snapshot.items) == 251
    assert snapshot.revision >= rev
    assert len({kv.mod_rev for kv in snapshot.items}) > 3


def test_deleting_what_is_not_there_makes_no_revision(bench: Bench) -> None:
    last = bench.put("a")
    assert bench.etcd.txn([], [Delete(bench.prefix + "b"), DeletePrefix(bench.prefix + "c")]).revision == last


def test_one_key_put_twice_in_a_transaction_is_our_bug(bench: Bench) -> None:
    with pytest.raises(InvariantError):
        bench.etcd.txn([], [Put(bench.prefix + "a", b"1"), Put(bench.prefix + "a", b"2")])


def test_a_transaction_of_too_many_operations_is_our_bug(bench: Bench) -> None:
    with pytest.raises(InvariantError):
        bench.etcd.txn([], [Put(f"{bench.prefix}{n}", b"") for n in range(129)])


def test_a_request_too_large_for_etcd_is_our_bug(bench: Bench) -> None:
    with pytest.raises(InvariantError):
        bench.put("a", b"x" * (2 << 20))


def test_a_watch_shows_whole_revisions_from_its_start_on(bench: Bench) -> None:
    bench.put("before")
    first = bench.put("a", b"1")
    watch = bench.etcd.watch(bench.prefix, first)
    second = bench.etcd.txn([], [Put(bench.prefix + "a", b"2"), Put(bench.prefix + "b", b"2")]).revision
    third = bench.etcd.txn([], [Delete(bench.prefix + "a"), Put(bench.prefix + "c", b"3")]).revision
    updates = [watch.next(SOON) for _ in range(3)]
    watch.close()
    assert [update and update.revision for update in updates] == [first, second, third]
    assert [update and len(update.changes) for update in updates] == [1, 2, 2]
    assert updates[2] is not None
    assert Change(key=bench.prefix + "a", now=None) in updates[2].changes


def test_a_watch_sees_no_other_prefix(bench: Bench) -> None:
    start = bench.put("a")
    watch = bench.etcd.watch(bench.prefix + "b/", start)
    bench.put("b")
    expected = bench.put("b/1")
    update = watch.next(SOON)
    watch.close()
    assert isinstance(update, WatchUpdate)
    assert update.revision == expected


def test_a_watch_may_end_before_its_prefix_does(bench: Bench) -> None:
    start = bench.put("a")
    watch = bench.etcd.watch(bench.prefix, start + 1, bench.prefix + "~")
    bench.put("~")
    bench.put("~c")
    both = bench.etcd.txn([], [Put(bench.prefix + "~c", b"2"), Put(bench.prefix + "b", b"2")])
    update = watch.next(SOON)
    watch.close()
    assert isinstance(update, WatchUpdate)
    assert update.revision == both.revision
    assert [change.key.removeprefix(bench.prefix) for change in update.changes] == ["b"]


def test_a_watch_with_nothing_to_show_returns_none_in_time(bench: Bench) -> None:
    watch = bench.etcd.watch(bench.prefix, bench.put("a") + 1)
    assert watch.next(NOT_NOW) is None
    watch.close()


def test_a_closed_watch_is_over(bench: Bench) -> None:
    watch = bench.etcd.watch(bench.prefix, bench.put("a") + 1)
    watch.close()
    assert not isinstance(read_until_error(watch), HistoryCompacted)


def test_a_watch_of_compacted_revisions_says_so(bench: Bench) -> None:
    start = bench.put("a")
    last = bench.put("a")
    bench.compact(last)
    assert isinstance(read_until_error(bench.etcd.watch(bench.prefix, start)), HistoryCompacted)


def test_a_watch_that_starts_at_the_compacted_revision_does_not_miss_what_was_deleted_there(bench: Bench) -> None:
    bench.put("a")
    deleted = bench.etcd.txn([], [Delete(bench.prefix + "a")]).revision
    bench.compact(deleted)
    assert isinstance(read_until_error(bench.etcd.watch(bench.prefix, deleted)), HistoryCompacted)


def test_a_watch_goes_on_after_the_compacted_revision(bench: Bench) -> None:
    last = bench.put("a")
    bench.compact(last)
    watch = bench.etcd.watch(bench.prefix, last + 1)
    expected = bench.put("a")
    update = watch.next(SOON)
    watch.close()
    assert update is not None
    assert update.revision == expected


def test_a_watch_may_start_in_the_future(bench: Bench) -> None:
    start = bench.put("a") + 2
    watch = bench.etcd.watch(bench.prefix, start)
    bench.put("a")
    assert bench.put("a") == start
    update = watch.next(SOON)
    watch.close()
    assert update is not None
    assert update.revision == start


def test_a_lease_grants_at_least_what_was_asked(bench: Bench) -> None:
    lease = bench.etcd.grant(timedelta(seconds=9.5))
    left = bench.etcd.time_to_live(lease.id)
    assert lease.ttl == timedelta(seconds=10)
    assert left is not None
    assert timedelta(0) < left <= lease.ttl
    assert bench.etcd.keep_alive(lease.id, SOON) == lease.ttl


def test_a_revoked_lease_takes_its_keys_in_one_revision(bench: Bench) -> None:
    lease = bench.etcd.grant(timedelta(seconds=10))
    bench.put("a", lease=lease.id)
    last = bench.put("b", lease=lease.id)
    watch = bench.etcd.watch(bench.prefix, last + 1)
    bench.etcd.revoke(lease.id)
    update = watch.next(SOON)
    watch.close()
    assert update is not None
    assert len(update.changes) == 2
    assert bench.names() == []
    assert bench.etcd.keep_alive(lease.id, SOON) is None
    assert bench.etcd.time_to_live(lease.id) is None


def test_a_lease_nobody_keeps_alive_expires_with_its_keys(bench: Bench) -> None:
    lease = bench.etcd.grant(timedelta(seconds=2))
    bench.put("a", lease=lease.id)
    bench.put("b")
    bench.let_expire(lease.id)
    assert bench.names() == ["b"]


def test_a_key_put_again_without_its_lease_outlives_it(bench: Bench) -> None:
    lease = bench.etcd.grant(timedelta(seconds=10))
    bench.put("a", lease=lease.id)
    bench.put("a")
    bench.etcd.revoke(lease.id)
    assert bench.names() == ["a"]


def test_a_lease_that_is_gone_takes_no_keys_and_may_be_revoked_again(bench: Bench) -> None:
    lease = bench.etcd.grant(timedelta(seconds=10))
    bench.etcd.revoke(lease.id)
    bench.etcd.revoke(lease.id)
    with pytest.raises(FencedError):
        bench.put("a", lease=lease.id)
