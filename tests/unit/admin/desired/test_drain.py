"""Nodes are drained and undrained; the last one that takes tables only if the user insists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from admin.desired.desired_store import DesiredStore
from changefeed.errors import NotFoundError, WrongState
from changefeed.records.node import NodeHealth, NodeId, NodeRecord, Role
from coordination.etcd.protocol import Committed, Compare, Op, Put, Refused
from coordination.layout import Layout, decode, encode
from tests.memory_etcd import MemoryClient, MemoryEtcd

LAYOUT = Layout("test")
N1, N2 = NodeId("n1"), NodeId("n2")


class InterruptedClient(MemoryClient):
    """Something happens between its look and its first write."""

    meanwhile: Callable[[], object] | None = None

    def txn(self, compares: Sequence[Compare], ops: Sequence[Op]) -> Committed | Refused:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().txn(compares, ops)


class Nodes:
    def __init__(self) -> None:
        self.etcd = InterruptedClient(MemoryEtcd())
        self.store = DesiredStore(self.etcd, LAYOUT)

    def join(self, id: NodeId, health: NodeHealth | None = None, role: Role = Role.PROCESSOR) -> None:
        now = datetime(2026, 11, 21, tzinfo=UTC)
        record = NodeRecord(
            id=id,
            name=id,
            admin_address="",
            roles=frozenset({role}),
            version="1",
            started_at=now,
            health=health,
        )
        lease = self.etcd.grant(timedelta(seconds=60)).id
        self.etcd.txn((), (Put(LAYOUT.node(id), encode(record), lease),))

    def draining(self, id: NodeId) -> bool:
        found = self.etcd.get(LAYOUT.node(id))
        assert found is not None
        assert found.lease
        return decode(NodeRecord, found).draining


@pytest.fixture
def nodes() -> Nodes:
    found = Nodes()
    found.join(N1)
    found.join(N2)
    return found


def test_a_drained_node_takes_tables_again_when_it_is_undrained(nodes: Nodes) -> None:
    nodes.store.drain(N1, force=False)
    assert nodes.draining(N1)
    nodes.store.undrain(N1)
    assert not nodes.draining(N1)


def test_the_last_node_that_takes_tables_is_drained_only_with_force(nodes: Nodes) -> None:
    nodes.store.drain(N1, force=False)
    with pytest.raises(WrongState, match=r"no other node takes tables.*--force"):
        nodes.store.drain(N2, force=False)
    assert not nodes.draining(N2)
    nodes.store.drain(N2, force=True)
    assert nodes.draining(N2)


def test_a_node_that_is_not_ready_takes_no_tables_and_nor_does_an_owner(nodes: Nodes) -> None:
    nodes.join(N1, NodeHealth(ready=False))
    nodes.join(NodeId("n3"), role=Role.OWNER)
    with pytest.raises(WrongState, match="no other node takes tables"):
        nodes.store.drain(N2, force=False)


def test_two_drains_at_the_same_time_do_not_both_succeed(nodes: Nodes) -> None:
    nodes.etcd.meanwhile = lambda: nodes.store.drain(N2, force=False)
    with pytest.raises(WrongState):
        nodes.store.drain(N1, force=False)
    assert (nodes.draining(N1), nodes.draining(N2)) == (False, True)


def test_a_drain_of_a_node_that_has_gone_says_so(nodes: Nodes) -> None:
    with pytest.raises(NotFoundError, match="no longer exists"):
        nodes.store.drain(NodeId("n9"))
