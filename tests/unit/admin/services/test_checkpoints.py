"""A changefeed's progress, as etcd shows it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from admin.cluster_reader import ClusterReader
from admin.services.verified_changefeed import EtcdCheckpoints
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.lifecycle import Lifecycle, State
from changefeed.position import Position
from changefeed.records.node import AssignedTable, Assignment, NodeId, PositionReport
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from changefeed.records.status import ChangefeedStatus, Straggler
from changefeed.table import TableId, TableName, TableSchema
from coordination.etcd.protocol import Put
from coordination.layout import Layout, encode
from coordination.mirror import Mirror
from coordination.parts import assignment_puts
from tests.memory_etcd import MemoryEtcd
from verify.comparison import Passed

ID, NODE, TABLE = ChangefeedId("orders"), NodeId("n1"), TableId("ab" * 16)
OTHER = TableId("cd" * 16)
LAYOUT, NOW = Layout("test"), datetime(2026, 11, 21, tzinfo=UTC)
AT_ONCE = timedelta(0)


def at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 1))


class Cluster:
    """The changefeed's checkpoint is 10; its one table is at 20."""

    def __init__(self, state: State = State.NORMAL, straggler: Straggler | None = None, *, copy: bool = False) -> None:
        self.etcd = MemoryEtcd()
        configuration = Configuration.parse({"id": ID, "source": "mongodb://a", "sink": "mongodb://b"})
        schema = TableSchema(id=TABLE, name=TableName("shop", "orders"), valid_from=at(1), copied=copy)
        if straggler is not None:
            self.put(LAYOUT.straggler(ID, TABLE), straggler)
        assignment = Assignment(tables={TABLE: AssignedTable(start=at(1))})
        self.put(LAYOUT.info(ID), ChangefeedInfo(configuration=configuration, created_at=datetime.now(UTC)))
        self.put(LAYOUT.schema(ID, TABLE), schema)
        puts = assignment_puts(LAYOUT.assignment(ID, NODE), Assignment(), assignment)
        rev = self.etcd.txn([], puts).revision
        report = PositionReport(run=1, barrier_rev=1, assignment_rev=rev, checkpoint=at(20))
        self.put(LAYOUT.position(ID, NODE), report)
        self.become(state, checkpoint=10)
        self.mirror = Mirror(self.etcd.connect(), LAYOUT.root)
        while self.mirror.poll(AT_ONCE):
            pass
        self.checkpoints = EtcdCheckpoints(ClusterReader(self.mirror, LAYOUT), ID, threading.Event())

    def become(self, state: State, checkpoint: int) -> None:
        lifecycle = Lifecycle(state=state)
        status = ChangefeedStatus(
            lifecycle=lifecycle,
            start=at(1),
            checkpoint=at(checkpoint),
            resolved=at(100),
            run=1,
            info_version=1,
            epoch=1,
        )
        self.put(LAYOUT.status(ID), status)

    def put(self, key: str, record: object) -> None:
        self.etcd.txn([], [Put(key, encode(record))])

    def passed(self, seconds: int, *tables: TableId) -> Passed:
        return self.checkpoints.wait_past(ClusterTime(seconds, 1), tables, AT_ONCE)


@pytest.mark.parametrize(("seconds", "passed"), [(9, Passed.PASSED), (10, Passed.OVERDUE), (11, Passed.OVERDUE)])
def test_a_checkpoint_passes_only_what_is_before_it(seconds: int, passed: Passed) -> None:
    assert Cluster().passed(seconds) is passed


def test_a_table_may_be_further_than_its_changefeed() -> None:
    cluster = Cluster()
    assert cluster.passed(15, TABLE) is Passed.PASSED
    assert cluster.passed(20, TABLE) is Passed.OVERDUE


def test_for_a_table_with_no_node_the_changefeed_counts() -> None:
    assert Cluster().passed(9, OTHER) is Passed.PASSED
    assert Cluster().passed(15, TABLE, OTHER) is Passed.OVERDUE


@pytest.mark.parametrize("state", [State.STOPPED, State.FAILED, State.FINISHED])
def test_nobody_is_waited_for_who_does_not_replicate(state: State) -> None:
    assert Cluster(state).passed(9) is Passed.STANDING


def test_a_table_that_is_catching_up_is_waited_for() -> None:
    """It was stopped, or held, and goes on by itself: what differs is on its way."""
    behind = Cluster(straggler=Straggler(at=at(5), since=NOW))
    assert behind.passed(15, TABLE) is Passed.PASSED
    assert behind.passed(20, TABLE) is Passed.OVERDUE


def test_a_table_that_waits_for_a_user_is_not_waited_for() -> None:
    stopped = Cluster(straggler=Straggler(at=at(5), stopped=True, since=NOW))
    assert stopped.passed(20, TABLE) is Passed.STANDING
    assert stopped.passed(15, TABLE, OTHER) is Passed.OVERDUE, "another table of the same target moves"
    assert stopped.passed(9, TABLE, OTHER) is Passed.PASSED


def test_a_table_that_is_being_copied_has_passed_nothing() -> None:
    cluster = Cluster(copy=True)
    assert cluster.passed(9, TABLE) is Passed.OVERDUE


def test_waiting_ends_when_the_checkpoint_has_come() -> None:
    cluster = Cluster()
    cluster.mirror.start()
    try:
        timer = threading.Timer(0.2, lambda: cluster.become(State.NORMAL, checkpoint=30))
        timer.start()
        assert cluster.checkpoints.wait_past(ClusterTime(25, 1), (), timedelta(seconds=30)) is Passed.PASSED
    finally:
        cluster.mirror.stop()
        timer.join()
