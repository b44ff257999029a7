"""What the oplog has lost concerns the tables that stand there, and the others go on."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from changefeed.cluster_time import ClusterTime
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Scope
from changefeed.records.node import AssignedTable, Assignment, NodeId, PositionReport
from changefeed.table import TableId, TableName, TableSchema
from owner.source_watch import loss_of, lost_alone, others_go_on
from owner.tables.known_tables import KnownTables
from owner.tables.progress import Floor, NodeState, TableProgress
from source.oplog.window import OplogWindow

A, B = TableId("a" * 32), TableId("b" * 32)
WINDOW = OplogWindow(oldest_ts=ClusterTime(100, 5), newest_ts=ClusterTime(100, 20))


def at(increment: int) -> Position:
    return Position(ClusterTime(100, increment))


def progress(**places: int) -> TableProgress:
    tables = {TableId(table * 32): AssignedTable(start=at(1)) for table in places}
    report = PositionReport(
        run=1,
        barrier_rev=1,
        assignment_rev=1,
        checkpoint=at(20),
        exceptions={TableId(table * 32): at(place) for table, place in places.items()},
    )
    node = NodeState(
        assignment=Assignment(tables=tables), assignment_rev=1, report=report, draining=False, gone_at=None
    )
    return TableProgress().next(tables, {NodeId("n1"): node}, Floor(at(0), ()))


def known(*stragglers: TableId) -> Any:
    return SimpleNamespace(stragglers=dict.fromkeys(stragglers))


def test_a_table_that_is_to_be_copied_anew_still_needs_the_rows_until_there() -> None:
    """At a sink of messages it keeps its id. Seed 261130094536: it waited for ever for a shard that was gone."""
    places = progress(a=3)
    tables = KnownTables({A: TableSchema(id=A, name=TableName("shop", "a"), valid_from=at(1))}, ())
    entering = DdlEvent(position=at(9), type=DdlType.ENTER, db="shop", table=TableName("shop", "a"), id=A)
    record = DdlRecord(
        event=entering, scope=Scope(), state=DdlState.PENDING, seen_at=datetime(2026, 11, 21, tzinfo=UTC)
    )
    losses = Mock()
    messages = SimpleNamespace(configuration=SimpleNamespace(sink_traits=SimpleNamespace(keeps_messages=True)))
    view: Any = SimpleNamespace(stragglers={}, records={at(9): record}, info=messages, barrier=None)
    loss_of(losses, view, tables, places, None)
    read = losses.look.call_args.args[3]()
    assert (read[A].at, read[A].there) == (at(3), True)


def test_a_table_that_cannot_keep_up_is_lost_alone() -> None:
    assert lost_alone(known(), progress(a=3, b=12), WINDOW) == {A}
    assert others_go_on(known(), progress(a=3, b=12), WINDOW)


def test_a_table_that_has_just_become_a_straggler_still_explains_a_checkpoint_that_is_not_in_the_oplog() -> None:
    assert lost_alone(known(A), progress(a=3, b=12), WINDOW) == frozenset()
    assert others_go_on(known(A), progress(a=3, b=12), WINDOW)


def test_if_all_tables_that_are_no_stragglers_are_lost_the_changefeed_is() -> None:
    assert not others_go_on(known(), progress(a=3, b=4), WINDOW)
    assert not others_go_on(known(A), progress(a=3, b=4), WINDOW)
    assert not others_go_on(known(A), progress(a=3), WINDOW), "nothing else explains where the checkpoint is"


def test_without_stragglers_a_lost_checkpoint_is_the_changefeeds() -> None:
    assert not others_go_on(known(), progress(a=12, b=12), WINDOW)
    assert not others_go_on(known(A), progress(a=3, b=12), None)
