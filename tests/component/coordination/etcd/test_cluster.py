"""Three members, as in production. The leader is killed, then the majority."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta

import pytest

from changefeed.errors import CoordinationUnavailable, OutcomeUnknown
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig, Put
from coordination.fenced import FencedStore
from coordination.mirror import Mirror
from devstack.etcd.cluster import EtcdCluster
from tests.until import until

SOON = timedelta(seconds=15)


def test_a_writer_and_its_mirror_outlive_the_leader(etcd_cluster: EtcdCluster) -> None:
    with EtcdClient(EtcdConfig(endpoints=etcd_cluster.endpoints)) as client:
        epoch = client.txn([], [Put("/s/own", b"")]).revision
        store = FencedStore(client, key="/s/own", epoch=epoch)
        mirror = Mirror(client, "/s/")
        mirror.start()
        mirror.at_least(epoch, SOON)
        lease = client.grant(SOON)
        etcd_cluster.leader().kill()
        assert client.keep_alive(lease.id, SOON) == SOON
        written = _insist(store, Put("/s/a", b"after"))
        kv = mirror.at_least(written, SOON).get("/s/a")
        mirror.stop()
        assert kv is not None
        assert kv.value == b"after"


def test_without_a_majority_nothing_is_taken_and_nothing_is_unknown_for_long(etcd_cluster: EtcdCluster) -> None:
    with EtcdClient(EtcdConfig(endpoints=etcd_cluster.endpoints[:1], timeout=timedelta(seconds=2))) as client:
        client.txn([], [Put("/a", b"1")])
        for member in etcd_cluster.members[1:]:
            member.kill()

        def says_no_leader() -> bool:
            with pytest.raises(CoordinationUnavailable) as caught:
                client.txn([], [Put("/a", b"2")])
            return not isinstance(caught.value, OutcomeUnknown)

        until(says_no_leader)
        with pytest.raises(CoordinationUnavailable):
            client.watch("/", 1).next(SOON)
        etcd_cluster.start()
        assert client.txn([], [Put("/a", b"3")]).revision > 0


def test_a_full_cluster_of_which_the_leader_is_killed_writes_again_once_it_has_room(etcd_cluster: EtcdCluster) -> None:
    with EtcdClient(EtcdConfig(endpoints=etcd_cluster.endpoints)) as client:
        etcd_cluster.fill_up()
        leader = etcd_cluster.leader()
        leader.kill()
        etcd_cluster.leader()
        with pytest.raises(CoordinationUnavailable, match="database space exceeded"):
            client.txn([], [Put("/a", b"1")])
        leader.start()
        etcd_cluster.make_room()
        assert client.txn([], [Put("/a", b"2")]).revision > 0


def _insist(store: FencedStore, put: Put) -> int:
    """Retries like a writer's loop: settle, decide again, commit."""
    deadline = time.monotonic() + SOON.total_seconds()
    while time.monotonic() < deadline:
        with suppress(CoordinationUnavailable):
            store.settle()
            return store.commit([put])
    raise AssertionError(f"not written within {SOON}")
