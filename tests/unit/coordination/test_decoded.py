from __future__ import annotations

import gc
from datetime import UTC, datetime, timedelta

from structlog.testing import capture_logs

from changefeed.position import Position
from changefeed.records.ddl import Barrier
from changefeed.records.node import AssignedTable, Assignment, NodeId, NodeRecord, PositionReport, Role
from changefeed.records.requests import ChangefeedId, TableRequest, TableVerb
from changefeed.table import TableId
from coordination.decoded import Decoded, StoredRecord
from coordination.etcd.protocol import DeletePrefix, Put
from coordination.layout import Layout, encode
from coordination.mirror import Mirror
from coordination.parts import assignment_puts
from coordination.view import View
from tests.memory_etcd import MemoryEtcd

LAYOUT = Layout("c")
ORDERS = ChangefeedId("orders")
ONE, TWO = NodeId("one-1"), NodeId("two-2")
AT = Position.parse("5.1")


class Cluster:
    def __init__(self) -> None:
        self.server = MemoryEtcd()
        self._mirror = Mirror(self.server.connect(), LAYOUT.root)

    def put(self, *puts: Put) -> int:
        return self.server.txn([], puts).revision

    def view(self) -> View:
        while self._mirror.poll(timedelta(0)):
            pass
        return self._mirror.view()


def report(checkpoint: str) -> PositionReport:
    return PositionReport(run=1, barrier_rev=1, assignment_rev=1, checkpoint=Position.parse(checkpoint))


def test_an_unchanged_record_is_not_decoded_again() -> None:
    cluster, decoded = Cluster(), Decoded(LAYOUT)
    cluster.put(
        Put(LAYOUT.position(ORDERS, ONE), encode(report("1.1"))),
        Put(LAYOUT.position(ORDERS, TWO), encode(report("1.1"))),
    )
    before = decoded.group(PositionReport, cluster.view(), LAYOUT.positions(ORDERS))
    rev = cluster.put(Put(LAYOUT.position(ORDERS, TWO), encode(report("2.1"))))
    after = decoded.group(PositionReport, cluster.view(), LAYOUT.positions(ORDERS))
    assert after[ONE] is before[ONE]
    assert (after[TWO].record, after[TWO].mod_rev) == (report("2.1"), rev)
    assert decoded.group(PositionReport, cluster.view(), LAYOUT.positions(ORDERS)) is after


def test_a_single_record_comes_with_its_revision_and_goes_with_its_key() -> None:
    cluster, decoded = Cluster(), Decoded(LAYOUT)
    rev = cluster.put(Put(LAYOUT.barrier(ORDERS), encode(Barrier(epoch=1, position=AT))))
    stored = decoded.one(Barrier, cluster.view(), LAYOUT.barrier(ORDERS))
    assert stored is not None
    assert (stored.record.position, stored.mod_rev) == (AT, rev)
    cluster.server.txn([], [DeletePrefix(LAYOUT.changefeed(ORDERS))])
    assert decoded.one(Barrier, cluster.view(), LAYOUT.barrier(ORDERS)) is None


def test_nothing_is_kept_of_a_changefeed_that_is_gone() -> None:
    cluster, decoded, other = Cluster(), Decoded(LAYOUT), ChangefeedId("others")
    for id in (ORDERS, other):
        cluster.put(
            Put(LAYOUT.info(id), b""),
            Put(LAYOUT.barrier(id), encode(Barrier(epoch=7_654_321, position=AT))),
            Put(LAYOUT.request(id, TableId("t")), encode(TableRequest(verb=TableVerb.STOP))),
        )

    def kept() -> int:
        gc.collect()
        return sum(type(each) is Barrier and each.epoch == 7_654_321 for each in gc.get_objects())

    for id in decoded.changefeeds(cluster.view()):
        decoded.one(Barrier, cluster.view(), LAYOUT.barrier(id))
        decoded.derived(TableRequest, cluster.view(), LAYOUT.requests(id), _verb)
    assert kept() == 2
    cluster.server.txn([], [DeletePrefix(LAYOUT.changefeed(ORDERS))])
    assert decoded.changefeeds(cluster.view()) == [other]
    assert kept() == 1
    assert decoded.derived(TableRequest, cluster.view(), LAYOUT.requests(other), _verb) == {
        TableId("t"): TableVerb.STOP
    }


def _verb(table: str, stored: StoredRecord[TableRequest]) -> tuple[TableId, TableVerb]:
    return TableId(table), stored.record.verb


def test_assignments_are_put_together_from_their_parts() -> None:
    cluster, decoded = Cluster(), Decoded(LAYOUT)
    tables = {TableId(f"{n:032x}"): AssignedTable(start=AT) for n in range(50)}
    group = LAYOUT.assignment(ORDERS, ONE)
    cluster.put(*assignment_puts(group, Assignment(), Assignment(tables=tables)))
    smaller = Assignment(tables={table: start for table, start in tables.items() if table != TableId(f"{7:032x}")})
    rev = cluster.put(*assignment_puts(group, Assignment(tables=tables), smaller))
    assignments = decoded.assignments(cluster.view(), ORDERS)
    assert assignments.keys() == {ONE}
    assert (assignments[ONE].record, assignments[ONE].mod_rev) == (smaller, rev)


def test_a_node_whose_record_cannot_be_read_lives_and_gets_no_tables() -> None:
    cluster, decoded = Cluster(), Decoded(LAYOUT)
    record = NodeRecord(
        id=ONE,
        name="one",
        admin_address="",
        roles=frozenset({Role.PROCESSOR}),
        version="1",
        started_at=datetime(2026, 11, 21, tzinfo=UTC),
    )
    cluster.put(Put(LAYOUT.node(ONE), encode(record)), Put(LAYOUT.node(TWO), b'{"v":9}'))

    nodes = decoded.nodes(cluster.view())

    assert nodes[ONE].record == record
    two = nodes[TWO].record
    assert (two.id, two.roles, two.draining, two.takes_tables) == (TWO, frozenset({Role.PROCESSOR}), True, False)
    assert two.health is not None
    assert two.health.error is not None
    assert "written in format 9" in two.health.error.message


def test_a_request_that_cannot_be_read_is_as_if_nobody_had_asked() -> None:
    cluster, decoded = Cluster(), Decoded(LAYOUT)
    key, other = (LAYOUT.request(ORDERS, TableId(table)) for table in ("a", "b"))
    asked, group = encode(TableRequest(verb=TableVerb.STOP)), LAYOUT.requests(ORDERS)
    cluster.put(Put(key, asked), Put(other, asked))
    assert decoded.group(TableRequest, cluster.view(), group).keys() == {"a", "b"}
    cluster.put(Put(key, b"damaged"))
    with capture_logs() as logs:
        assert decoded.group(TableRequest, cluster.view(), group).keys() == {"b"}
    assert [(log["event"], key in log["error"]) for log in logs] == [("request_not_obeyed", True)]
    cluster.put(Put(key, asked))
    assert decoded.group(TableRequest, cluster.view(), group).keys() == {"a", "b"}
