from __future__ import annotations

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.errors import ConflictError, OutcomeUnknown
from changefeed.position import Position
from changefeed.records.node import NodeId, PositionReport
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableId
from coordination.decoded import Decoded
from coordination.etcd.protocol import CreateRevIs, Delete, DeletePrefix, Put
from coordination.fenced import FencedStore
from coordination.layout import Layout
from coordination.view import Replica
from processor.node_reports import NodeReports
from tests.memory_etcd import MemoryClient, MemoryEtcd

LAYOUT, ID, NODE, OTHER = Layout("c"), ChangefeedId("orders"), NodeId("n1"), NodeId("n10")
TABLES = [TableId(f"{number:032x}") for number in range(50)]


def report(seconds: int, behind: list[TableId]) -> PositionReport:
    at = Position(ClusterTime(seconds, 1))
    exceptions = dict.fromkeys(behind, Position(ClusterTime(1, 1)))
    return PositionReport(run=1, assignment_rev=0, barrier_rev=0, checkpoint=at, exceptions=exceptions)


class Node:
    def __init__(self, server: MemoryEtcd, name: NodeId) -> None:
        self.client: MemoryClient = server.connect()
        self.name = name
        key = LAYOUT.node(name)
        self.store = FencedStore(self.client, key=key, epoch=self.client.txn([], [Put(key, b"")]).revision)
        self.reports = self.session()

    def session(self) -> NodeReports:
        return NodeReports(self.store, LAYOUT, ID, self.name)


@pytest.fixture
def server() -> MemoryEtcd:
    return MemoryEtcd()


def in_etcd(server: MemoryEtcd, node: NodeId = NODE) -> PositionReport | None:
    replica = Replica()
    replica.reset(server.range(LAYOUT.root))
    return Decoded(LAYOUT).reports(replica.view(), ID).get(node)


def test_a_report_is_written_by_what_has_changed(server: MemoryEtcd) -> None:
    node = Node(server, NODE)
    node.reports.write(report(1, TABLES), [])
    assert in_etcd(server) == report(1, TABLES)
    parts = {kv.key: kv.mod_rev for kv in server.range(f"{LAYOUT.position(ID, NODE)}/").items}
    node.reports.write(report(2, TABLES), [])
    assert in_etcd(server) == report(2, TABLES)
    assert {kv.key: kv.mod_rev for kv in server.range(f"{LAYOUT.position(ID, NODE)}/").items} == parts


@pytest.mark.parametrize("arrives", [True, False])
def test_after_an_unknown_outcome_the_next_report_is_whole_all_the_same(server: MemoryEtcd, arrives: bool) -> None:
    node = Node(server, NODE)
    node.reports.write(report(1, TABLES), [])
    if arrives:
        node.client.lose_answers = 1
    else:
        node.client.lose_requests = 1
    with pytest.raises(OutcomeUnknown):
        node.reports.write(report(2, TABLES[:3]), [])
    node.store.settle()
    node.reports.write(report(3, TABLES[:5]), [])
    node.client.deliver_late()
    assert in_etcd(server) == report(3, TABLES[:5])


def test_a_node_that_begins_again_with_a_changefeed_finds_its_report(server: MemoryEtcd) -> None:
    node = Node(server, NODE)
    node.reports.write(report(1, TABLES), [])
    node.session().write(report(2, TABLES[:1]), [])
    assert in_etcd(server) == report(2, TABLES[:1])
    server.txn([], [DeletePrefix(LAYOUT.positions(ID))])
    node.session().write(report(3, TABLES[:2]), [])
    assert in_etcd(server) == report(3, TABLES[:2])


def test_a_report_about_a_changefeed_that_is_gone_is_refused(server: MemoryEtcd) -> None:
    node = Node(server, NODE)
    created = server.txn([], [Put(LAYOUT.info(ID), b"")]).revision
    server.txn([], [Delete(LAYOUT.info(ID))])
    with pytest.raises(ConflictError):
        node.reports.write(report(1, TABLES), [CreateRevIs(LAYOUT.info(ID), created)])
    assert in_etcd(server) is None


def test_what_a_mirror_must_reach_does_not_include_reports(server: MemoryEtcd) -> None:
    node = Node(server, NODE)
    before = node.store.settle()
    node.reports.write(report(1, TABLES), [])
    assert node.store.settle() == before


def test_reports_of_others_are_read_once_a_second(server: MemoryEtcd) -> None:
    node, other = Node(server, NODE), Node(server, OTHER)
    other.reports.write(report(1, TABLES), [])
    assert node.reports.of({OTHER, NodeId("n2")}, 10.0) == {OTHER: report(1, TABLES), NodeId("n2"): None}
    other.reports.write(report(2, TABLES), [])
    assert node.reports.of({OTHER}, 10.9) == {OTHER: report(1, TABLES)}
    assert node.reports.of({OTHER}, 11.0) == {OTHER: report(2, TABLES)}
    assert node.reports.of(set(), 20.0) == {}
