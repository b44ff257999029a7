"""Three members, as in production: one dies, then the majority."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from changefeed.errors import CoordinationUnavailable, OutcomeUnknown
from coordination.etcd import Put
from coordination.etcd_client import EtcdClient
from coordination.etcd_connection import EtcdConfig
from coordination.fenced import FencedStore
from coordination.mirror import Mirror
from devstack.etcd import Etcd

SOON = timedelta(seconds=15)
_NAMES = ("one", "two", "three")


class Member(Etcd):
    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(directory / name, directory / f"{name}.log")
        self.name = name
        self.cluster: list[Member] = []

    @property
    def peer(self) -> str:
        return f"{self.name}=http://127.0.0.1:{self.ports[1]}"

    def command(self) -> list[str]:
        command = super().command()
        command[command.index("--name") + 1] = self.name
        command[command.index("--initial-cluster") + 1] = ",".join(member.peer for member in self.cluster)
        return command


@pytest.fixture
def members(tmp_path: Path) -> Iterator[list[Member]]:
    members = [Member(name, tmp_path) for name in _NAMES]
    for member in members:
        member.cluster = members
    with ThreadPoolExecutor() as pool:
        list(pool.map(Member.start, members))
    yield members
    for member in members:
        member.kill()


def test_a_writer_and_its_mirror_outlive_a_member(members: list[Member]) -> None:
    with EtcdClient(EtcdConfig(endpoints=tuple(member.endpoint for member in members))) as client:
        epoch = client.txn([], [Put("/s/own", b"")]).revision
        store = FencedStore(client, key="/s/own", epoch=epoch)
        mirror = Mirror(client, "/s/")
        mirror.start()
        mirror.at_least(epoch, SOON)
        lease = client.grant(SOON)
        members[0].kill()
        assert client.keep_alive(lease.id, SOON) == SOON
        written = _insist(store, Put("/s/a", b"after"))
        kv = mirror.at_least(written, SOON).get("/s/a")
        mirror.stop()
        assert kv is not None
        assert kv.value == b"after"


def test_without_a_majority_nothing_is_taken_and_nothing_is_unknown_for_long(
    members: list[Member], until: Callable[..., None]
) -> None:
    with EtcdClient(EtcdConfig(endpoints=(members[0].endpoint,), timeout=timedelta(seconds=2))) as client:
        client.txn([], [Put("/a", b"1")])
        for member in members[1:]:
            member.kill()

        def says_no_leader() -> bool:
            with pytest.raises(CoordinationUnavailable) as caught:
                client.txn([], [Put("/a", b"2")])
            return not isinstance(caught.value, OutcomeUnknown)

        until(says_no_leader)
        with pytest.raises(CoordinationUnavailable):
            client.watch("/", 1).next(SOON)


def _insist(store: FencedStore, put: Put) -> int:
    """As a writer's loop does: settle, decide anew, commit."""
    deadline = time.monotonic() + SOON.total_seconds()
    while time.monotonic() < deadline:
        with suppress(CoordinationUnavailable):
            store.settle()
            return store.commit([put])
    raise AssertionError(f"not written within {SOON}")
