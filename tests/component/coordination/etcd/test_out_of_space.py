"""An etcd that is out of space: the same cases run on the in-memory implementation and on a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from changefeed.errors import CoordinationFull
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import CreateRevIs, Delete, Etcd, EtcdConfig, Put, Refused
from coordination.fenced import FencedStore
from coordination.write_health import EtcdWrites
from devstack.etcd.server import SMALL_QUOTA
from devstack.etcd.server import EtcdServer as EtcdServer
from tests.memory_etcd import MemoryEtcd

SOON = timedelta(seconds=5)
NEVER = CreateRevIs("/never", 1)


@dataclass(frozen=True)
class Narrow:
    etcd: Etcd
    fill_up: Callable[[], None]
    make_room: Callable[[], None]


@pytest.fixture(params=["memory", "real"])
def narrow(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Narrow]:
    if request.param == "memory":
        memory = MemoryEtcd()
        yield Narrow(memory.connect(), memory.fill_up, memory.make_room)
        return
    with (
        EtcdServer(tmp_path / "etcd", tmp_path / "etcd.log", quota_bytes=SMALL_QUOTA) as real,
        EtcdClient(EtcdConfig(endpoints=(real.endpoint,))) as client,
    ):
        yield Narrow(client, real.fill_up, real.make_room)


def test_it_refuses_what_puts(narrow: Narrow) -> None:
    narrow.etcd.txn([], [Put("/a", b"1")])
    narrow.fill_up()
    with pytest.raises(CoordinationFull, match="database space exceeded"):
        narrow.etcd.txn([], [Put("/a", b"2")])
    with pytest.raises(CoordinationFull):
        narrow.etcd.txn([], [Put("/a", b""), Delete("/b")])
    found = narrow.etcd.get("/a")
    assert found is not None
    assert found.value == b"1"


def test_it_keeps_leases_alive_and_grants_none(narrow: Narrow) -> None:
    lease = narrow.etcd.grant(timedelta(seconds=10))
    narrow.fill_up()
    assert narrow.etcd.keep_alive(lease.id, SOON) == lease.ttl
    with pytest.raises(CoordinationFull):
        narrow.etcd.grant(timedelta(seconds=10))
    narrow.etcd.revoke(lease.id)
    assert narrow.etcd.keep_alive(lease.id, SOON) is None


def test_its_watches_show_what_happens(narrow: Narrow) -> None:
    lease = narrow.etcd.grant(timedelta(seconds=10))
    rev = narrow.etcd.txn([], [Put("/w/a", b"1", lease.id)]).revision
    watch = narrow.etcd.watch("/w/", rev + 1)
    narrow.fill_up()
    narrow.etcd.revoke(lease.id)
    update = watch.next(SOON)
    watch.close()
    assert update is not None
    assert update.changes[0].now is None


def test_a_put_behind_a_compare_that_never_holds_finds_it_out_and_changes_nothing(narrow: Narrow) -> None:
    before = narrow.etcd.txn([], [Put("/a", b"1")]).revision
    assert isinstance(narrow.etcd.txn([NEVER], [Put("/never", b"")]), Refused)
    assert narrow.etcd.range("/").revision == before
    narrow.fill_up()
    with pytest.raises(CoordinationFull):
        narrow.etcd.txn([NEVER], [Put("/never", b"")])


def test_with_room_again_a_writer_settles_and_goes_on(narrow: Narrow) -> None:
    epoch = narrow.etcd.txn([], [Put("/own", b"")]).revision
    store = FencedStore(narrow.etcd, key="/own", epoch=epoch)
    writes = EtcdWrites(narrow.etcd, "/probe")
    narrow.fill_up()
    with pytest.raises(CoordinationFull):
        store.commit([Put("/a", b"1")])
    with pytest.raises(CoordinationFull):
        store.settle()
    narrow.make_room()
    assert store.settle() > epoch
    store.commit([Put("/a", b"2")])
    writes.look()
    found = narrow.etcd.get("/a")
    assert found is not None
    assert found.value == b"2"
    assert narrow.etcd.get("/probe") is None


def test_what_a_real_one_was_at_when_it_ran_out_of_space_it_has_taken_and_refused(tmp_path: Path) -> None:
    """So a refusal for lack of space is an unknown outcome. With sixteen concurrent writers nine of ten servers show it."""
    assert any(_taken_though_refused(tmp_path / f"etcd-{attempt}") for attempt in range(10))


def _taken_though_refused(directory: Path) -> set[str]:
    """Each try has a server of its own: one without space may refuse transactions that only delete, too."""
    with (
        EtcdServer(directory, directory.with_suffix(".log"), quota_bytes=SMALL_QUOTA) as real,
        EtcdClient(EtcdConfig(endpoints=(real.endpoint,))) as client,
        ThreadPoolExecutor(16) as writers,
    ):

        def write(key: str) -> str:
            for number in range(1000):
                try:
                    client.txn([], [Put(f"{key}/{number}", bytes(20_000))])
                except CoordinationFull:
                    return f"{key}/{number}"
            raise AssertionError("it took 20 MB and more")

        refused = set(writers.map(write, [f"/k/{writer}" for writer in range(16)]))
        return refused & {kv.key for kv in client.range("/k/").items}


def test_the_in_memory_one_takes_and_refuses_the_write_that_meets_the_end_of_its_space() -> None:
    server = MemoryEtcd()
    store = FencedStore(server.connect(), key="/own", epoch=server.txn([], [Put("/own", b"")]).revision)
    server.fill_up(at_once=False)
    with pytest.raises(CoordinationFull):
        store.commit([Put("/a", b"1")])
    server.make_room()
    settled = store.settle()
    found = server.get("/a")
    assert found is not None
    assert found.mod_rev < settled
