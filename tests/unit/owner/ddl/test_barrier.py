"""The barrier's rules, and accidents known from other systems, each with its own test."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.errors import InvariantError
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Scope
from changefeed.table import TableId, TableName
from owner.ddl import barrier
from tests.invariants import check_barrier
from tests.work import lines_run

SEEN = datetime(2026, 11, 21, tzinfo=UTC)
A, B, C = TableId("a"), TableId("b"), TableId("c")
NOWHERE: dict[TableId, Position] = {}


def at(increment: int, token: str = "") -> Position:
    return Position(ClusterTime(100, increment), token)


def ddl(
    increment: int,
    *tables: TableId,
    names: tuple[str, ...] = (),
    type: DdlType = DdlType.DROP,
    state: DdlState = DdlState.PENDING,
    background: bool = False,
    token: str = "",
) -> DdlRecord:
    return DdlRecord(
        event=DdlEvent(position=at(increment, token), type=type, db="shop"),
        scope=Scope(
            tables=frozenset(tables),
            names=frozenset(TableName("shop", name) for name in (names or tables)),
        ),
        state=state,
        background=background,
        seen_at=SEEN,
    )


def positions(records: tuple[DdlRecord, ...]) -> list[int]:
    return [record.position.ts.increment for record in records]


def test_with_no_ddl_the_barrier_is_the_resolved_position() -> None:
    gate = barrier.decide(at(13), [], NOWHERE.get)
    assert (gate.position, dict(gate.held), gate.runnable) == (at(13), {}, ())


def test_an_open_ddl_holds_its_table_and_no_other() -> None:
    gate = barrier.decide(at(13), [ddl(11, A)], {A: at(5), B: at(13)}.get)
    assert gate.position == at(13)
    assert gate.held == {A: at(11)}
    assert gate.runnable == ()


def test_a_ddl_runs_when_the_checkpoint_equals_its_position() -> None:
    assert positions(barrier.decide(at(13), [ddl(11, A)], {A: at(11)}.get).runnable) == [11]


def test_a_ddl_that_was_recorded_by_an_owner_that_died_waits_until_the_watch_is_there_again() -> None:
    """Otherwise a table created by the DDL would begin beyond the barrier, and the checkpoint would pass the resolved position."""
    created = ddl(11, names=("a",), type=DdlType.CREATE)
    assert barrier.decide(at(11), [created], NOWHERE.get).runnable == ()
    assert barrier.decide(at(12), [created], NOWHERE.get).runnable == (created,)


@pytest.mark.parametrize("checkpoint", [at(10), at(11, "AA"), at(12), None])
def test_a_ddl_does_not_run_at_any_other_checkpoint(checkpoint: Position | None) -> None:
    def checkpoint_of(table: TableId) -> Position | None:
        return checkpoint

    assert barrier.decide(at(13), [ddl(11, A)], checkpoint_of).runnable == ()


def test_a_done_ddl_holds_nothing() -> None:
    gate = barrier.decide(at(13), [ddl(11, A, state=DdlState.DONE)], {A: at(11)}.get)
    assert gate.held == {}
    assert gate.runnable == ()


def test_a_table_is_held_at_the_first_of_its_ddls() -> None:
    gate = barrier.decide(at(13), [ddl(12, A), ddl(9, A)], {A: at(9)}.get)
    assert gate.held == {A: at(9)}
    assert positions(gate.runnable) == [9]


def test_ddls_that_do_not_meet_run_side_by_side() -> None:
    gate = barrier.decide(at(13), [ddl(9, A), ddl(11, B)], {A: at(9), B: at(11)}.get)
    assert positions(gate.runnable) == [9, 11]


def test_a_drop_and_the_create_of_the_same_name_run_in_stream_order() -> None:
    drop, create = ddl(9, A, names=("orders",)), ddl(10, names=("orders",), type=DdlType.CREATE)
    assert positions(barrier.decide(at(13), [drop, create], {A: at(8)}.get).runnable) == []
    assert positions(barrier.decide(at(13), [drop, create], {A: at(9)}.get).runnable) == [9]
    done = replace(drop, state=DdlState.DONE)
    assert positions(barrier.decide(at(13), [done, create], NOWHERE.get).runnable) == [10]


def test_two_ddls_at_one_cluster_time_run_in_token_order() -> None:
    first, second = ddl(9, A, token="8201"), ddl(9, A, token="8202")
    assert barrier.decide(at(13), [second, first], {A: at(9, "8201")}.get).runnable == (first,)
    first_done = replace(first, state=DdlState.DONE)
    gate = barrier.decide(at(13), [second, first_done], {A: at(9, "8201")}.get)
    assert (gate.runnable, gate.held) == ((), {A: at(9, "8202")})
    assert barrier.decide(at(13), [second, first_done], {A: at(9, "8202")}.get).runnable == (second,)


def test_a_swap_by_three_renames_runs_in_order_and_holds_both_tables() -> None:
    swap = [
        ddl(5, A, names=("a", "tmp"), type=DdlType.RENAME),
        ddl(6, B, names=("b", "a"), type=DdlType.RENAME),
        ddl(7, A, names=("tmp", "b"), type=DdlType.RENAME),
    ]
    checkpoints = {A: at(5), B: at(6), C: at(13)}
    order = []
    for _ in swap:
        gate = barrier.decide(at(13), swap, checkpoints.get)
        (record,) = gate.runnable
        order.append(record.position.ts.increment)
        swap[swap.index(record)] = replace(record, state=DdlState.DONE)
        checkpoints[A] = at(7)
    assert order == [5, 6, 7]
    assert barrier.decide(at(13), swap, checkpoints.get).held == {}


def test_a_database_drop_meets_each_name_in_the_database() -> None:
    drop = replace(ddl(5, A), scope=Scope(tables=frozenset({A}), databases=frozenset({"shop"})))
    create = ddl(6, names=("fresh",), type=DdlType.CREATE)
    assert positions(barrier.decide(at(13), [drop, create], {A: at(4)}.get).runnable) == []


def test_a_table_with_no_node_stops_its_ddl_and_only_it() -> None:
    gate = barrier.decide(at(13), [ddl(9, A), ddl(10, B)], {B: at(10)}.get)
    assert positions(gate.runnable) == [10]
    assert "to be assigned to a node" in barrier.waits_for(ddl(9, A), [ddl(9, A)], {B: at(10)}.get)


def test_a_ddl_of_a_table_nobody_replicates_waits_for_nobody() -> None:
    assert positions(barrier.decide(at(13), [ddl(9, names=("fresh",), type=DdlType.CREATE)], NOWHERE.get).runnable) == [
        9
    ]


def test_an_executing_ddl_is_offered_again_to_the_one_who_takes_over() -> None:
    executing = ddl(9, A, state=DdlState.EXECUTING)
    gate = barrier.decide(at(13), [executing], {A: at(9)}.get)
    assert gate.runnable == (executing,)
    assert gate.held == {A: at(9)}


def test_a_background_build_keeps_its_order_among_the_ddls_of_its_name() -> None:
    records = [ddl(5, A, names=("x",)), ddl(7, B, names=("x",), type=DdlType.CREATE_INDEXES, background=True)]
    waits = barrier.decide(at(13), records, {A: at(3), B: at(13)}.get)
    assert positions(waits.runnable) == []
    first = barrier.decide(at(13), records, {A: at(5), B: at(13)}.get)
    assert positions(first.runnable) == [5]


def test_a_background_build_holds_nothing_and_runs_once_the_rows_have_passed_it() -> None:
    build = ddl(9, A, type=DdlType.CREATE_INDEXES, background=True)
    assert barrier.decide(at(13), [build], {A: at(8)}.get).runnable == ()
    gate = barrier.decide(at(13), [build], {A: at(12)}.get)
    assert (positions(gate.runnable), gate.held) == ([9], {})


def test_a_drop_waits_for_the_background_build_before_it() -> None:
    build, drop = ddl(9, A, type=DdlType.CREATE_INDEXES, background=True), ddl(11, A)
    gate = barrier.decide(at(13), [build, drop], {A: at(11)}.get)
    assert positions(gate.runnable) == [9]
    assert gate.held == {A: at(11)}
    assert "comes first" in barrier.waits_for(drop, [build, drop], {A: at(11)}.get)


def test_the_checkpoint_of_the_changefeed_does_not_pass_a_ddl_that_is_not_done() -> None:
    records = [ddl(9, names=("fresh",), type=DdlType.CREATE)]
    assert barrier.changefeed_checkpoint(at(12), records, at(13)) == at(9)
    assert barrier.changefeed_checkpoint(at(7), records, at(13)) == at(7)
    assert barrier.changefeed_checkpoint(None, [], at(13)) == at(13)


def test_the_invariant_check_refuses_a_gate_that_lets_rows_pass_a_ddl() -> None:
    open_gate = barrier.BarrierDecision(position=at(13), held={}, runnable=())
    with pytest.raises(InvariantError, match="is not done"):
        check_barrier(open_gate, [ddl(11, A)], NOWHERE.get)


def test_a_table_that_enters_again_waits_until_it_has_left_its_node() -> None:
    out = ddl(5, A, names=("a",))
    enters = replace(ddl(9, names=("b",), type=DdlType.RENAME), scope=Scope(apart=frozenset({A})))
    assert positions(barrier.decide(at(13), [out, enters], {A: at(5)}.get).runnable) == [5]
    gone = replace(out, state=DdlState.DONE)
    assert positions(barrier.decide(at(13), [gone, enters], {A: at(5)}.get).runnable) == []
    assert "to leave the node" in barrier.waits_for(enters, [gone, enters], {A: at(5)}.get)
    assert positions(barrier.decide(at(13), [gone, enters], NOWHERE.get).runnable) == [9]


def test_a_view_is_waited_for_by_nobody_and_keeps_its_order() -> None:
    view = TableId("view:shop.v")
    modify = replace(ddl(5, type=DdlType.MODIFY), scope=Scope(apart=frozenset({view})))
    drop = replace(ddl(6), scope=Scope(apart=frozenset({view})))
    gate = barrier.decide(at(13), [modify, drop], NOWHERE.get)
    assert (positions(gate.runnable), gate.held) == ([5], {})


def test_dropping_many_tables_is_decided_in_one_pass() -> None:
    """Pairwise comparison of ten thousand would take minutes of an owner's tick."""
    assert lines_run(partial(_decide_drops, 4_000)) < 6 * lines_run(partial(_decide_drops, 1_000))


def _decide_drops(count: int) -> None:
    drops = [ddl(increment, TableId(f"{increment:032x}")) for increment in range(1, count + 1)]
    reached = {table: record.position for record in drops for table in record.scope.tables}
    assert len(barrier.decide(at(count * 2), drops, reached.get).runnable) == count
