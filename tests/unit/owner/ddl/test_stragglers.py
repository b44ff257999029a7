"""Which DDLs wait with a table in trouble, which tables stand with them, and what no longer matters."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from changefeed.cluster_time import ClusterTime
from changefeed.errors import DdlRefused, HistoryLost
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Scope
from changefeed.records.status import Straggler
from changefeed.table import TableId, TableName
from owner.ddl import barrier
from owner.ddl.stragglers import NOTHING, StoredStraggler, Waiting, behind, not_awaited, wait
from tests.invariants import check_barrier

NOW = datetime(2026, 11, 22, tzinfo=UTC)
A, B, C, D = (TableId(letter * 32) for letter in "abcd")
REFUSED = ErrorReport.of(DdlRefused("not like this"), NOW)
END = 99


def at(increment: int) -> Position:
    return Position(ClusterTime(100, increment))


def ddl(
    increment: int,
    type: DdlType,
    *tables: TableId,
    names: str = "",
    ended: tuple[TableId, ...] = (),
    refused: bool = False,
    background: bool = False,
    creates: TableId | None = None,
) -> DdlRecord:
    own = creates or (tables[0] if tables else None)
    return DdlRecord(
        event=DdlEvent(position=at(increment), type=type, db="shop", table=TableName("shop", "x"), id=own),
        scope=Scope(
            tables=frozenset(tables),
            names=frozenset(TableName("shop", name) for name in names),
            ended=frozenset(ended),
        ),
        refused=REFUSED if refused else None,
        background=background,
        seen_at=NOW,
    )


def stopped(increment: int, error: ErrorReport | None = None) -> StoredStraggler:
    return StoredStraggler(Straggler(at=at(increment), stopped=True, error=error, since=NOW), 7)


def going(increment: int) -> StoredStraggler:
    return StoredStraggler(Straggler(at=at(increment), since=NOW), 7)


def waiting(
    records: list[DdlRecord], stragglers: dict[TableId, StoredStraggler], *, obeyed: bool = True, **places: int
) -> Waiting:
    known = {TableId(letter * 32): at(place) for letter, place in places.items()}
    return wait(stragglers, lambda _table, _rev: obeyed, records, at(END), known.get)


def runnable(records: list[DdlRecord], found: Waiting, **places: int) -> list[int]:
    known = {TableId(letter * 32): at(place) for letter, place in places.items()}
    gate = barrier.decide(at(END), records, known.get, found)
    check_barrier(gate, records, known.get, found)
    return [record.position.ts.increment for record in gate.runnable]


def increments(positions: frozenset[Position]) -> list[int]:
    return sorted(position.ts.increment for position in positions)


def test_without_trouble_nothing_waits() -> None:
    assert waiting([ddl(7, DdlType.DROP, A, ended=(A,))], {}, a=5) is NOTHING


def test_the_example_of_the_module() -> None:
    records = [
        ddl(7, DdlType.CREATE_INDEXES, B, names="b"),
        ddl(8, DdlType.RENAME, C, names="cd"),
        ddl(9, DdlType.RENAME, B, names="be"),
        ddl(10, DdlType.CREATE, names="b", creates=D),
        ddl(11, DdlType.RENAME, C, names="db"),
    ]
    found = waiting(records, {B: stopped(5)}, b=5, c=8)
    assert increments(found.blocked) == [7, 9, 10, 11]
    assert found.standing == {B}
    assert runnable(records, found, b=5, c=8) == [8]
    done = [record for record in records if record.position != at(8)]
    later = waiting(done, {B: stopped(5)}, b=5, c=11)
    assert later.standing == {B, C}
    assert runnable(done, later, b=5, c=11) == []


def test_a_stopped_table_that_has_reached_a_ddl_does_not_block_it() -> None:
    records = [ddl(7, DdlType.CREATE_INDEXES, A)]
    found = waiting(records, {A: stopped(7)}, a=7)
    assert found.blocked == frozenset()
    assert runnable(records, found, a=7) == [7]


def test_a_refused_ddl_holds_its_tables_and_what_meets_it() -> None:
    records = [ddl(7, DdlType.CREATE_INDEXES, A, refused=True), ddl(9, DdlType.RENAME, A, B), ddl(9, DdlType.MODIFY, C)]
    found = waiting(records, {}, a=7, b=9, c=9)
    assert increments(found.blocked) == [7, 9]
    assert found.standing == {A, B}
    assert runnable(records, found, a=7, b=9, c=9) == [9]


def test_a_refused_build_beside_the_rows_holds_no_row() -> None:
    records = [ddl(7, DdlType.CREATE_INDEXES, A, refused=True, background=True)]
    found = waiting(records, {}, a=12)
    assert found.standing == frozenset()
    assert increments(not_awaited(records, {A}.__contains__, found, at(5))) == [7]


def test_the_checkpoint_waits_for_a_blocked_ddl_as_long_as_a_table_there_is_no_straggler() -> None:
    records = [ddl(7, DdlType.CREATE_INDEXES, A, refused=True), ddl(9, DdlType.RENAME, A, B)]
    found = waiting(records, {A: going(7)}, a=7, b=8)
    assert increments(not_awaited(records, {B, C}.__contains__, found, at(5))) == [7]
    assert increments(not_awaited(records, {C}.__contains__, found, at(5))) == [7, 9]


def test_the_checkpoint_does_not_go_back_to_what_it_has_passed() -> None:
    records = [ddl(7, DdlType.CREATE_INDEXES, A)]
    assert increments(not_awaited(records, {A}.__contains__, NOTHING, at(8))) == [7]
    assert increments(not_awaited(records, {A}.__contains__, NOTHING, at(7))) == []


def test_a_stopped_table_that_ends_is_not_awaited_once_nothing_of_it_is_written() -> None:
    records = [ddl(7, DdlType.RENAME, A, names="ab"), ddl(9, DdlType.DROP, A, names="b", ended=(A,))]
    found = waiting(records, {A: stopped(5)}, obeyed=False, a=5)
    assert runnable(records, found, a=5) == []
    found = waiting(records, {A: stopped(5)}, a=5)
    assert runnable(records, found, a=5) == [7]
    assert runnable(records[1:], found, a=5) == [9]


def test_a_table_that_ends_while_it_catches_up_is_awaited() -> None:
    records = [ddl(9, DdlType.DROP, A, ended=(A,))]
    found = waiting(records, {A: going(5)}, a=5)
    assert (found.passed, increments(found.blocked)) == (frozenset(), [9])


def test_a_replaced_table_is_not_awaited_and_the_renamed_one_is() -> None:
    records = [ddl(9, DdlType.RENAME, A, B, ended=(B,))]
    assert runnable(records, waiting(records, {B: stopped(5)}, a=9, b=5), a=9, b=5) == [9]
    assert runnable(records, waiting(records, {A: stopped(5)}, a=5, b=9), a=5, b=9) == []


def test_a_refused_ddl_of_a_table_that_ends_is_needless_where_it_leaves_no_trace() -> None:
    drop = ddl(9, DdlType.DROP, A, ended=(A,))
    for type, needless in ((DdlType.CREATE_INDEXES, [7]), (DdlType.MODIFY, [7]), (DdlType.RENAME, [])):
        assert increments(waiting([ddl(7, type, A, refused=True), drop], {}, a=7).needless) == needless
    created = ddl(7, DdlType.CREATE, creates=A, refused=True)
    assert increments(waiting([created, drop], {}).needless) == [7]
    shared = ddl(7, DdlType.CREATE_INDEXES, A, B, refused=True)
    assert increments(waiting([shared, drop], {}, a=7, b=7).needless) == []
    assert increments(waiting([replace(drop, refused=REFUSED)], {}, a=9).needless) == []


def test_a_stopped_table_that_ends_skips_what_nothing_has_begun_of_once_nothing_of_it_is_written() -> None:
    index, options = ddl(7, DdlType.CREATE_INDEXES, A, background=True), ddl(8, DdlType.MODIFY, A)
    named, later, drop = ddl(9, DdlType.RENAME, A), ddl(10, DdlType.MODIFY, A), ddl(12, DdlType.DROP, A, ended=(A,))
    records = [index, options, named, later, drop]
    assert increments(waiting(records, {A: stopped(5)}, a=5).needless) == [7, 8], "not before what has to run"
    assert increments(waiting([later, drop], {A: stopped(5)}, a=5).needless) == [10]
    assert increments(waiting(records, {A: stopped(5)}, obeyed=False, a=5).needless) == []
    assert increments(waiting(records, {}, a=5).needless) == [], "it is on its way"
    begun = replace(index, state=DdlState.EXECUTING)
    assert increments(waiting([begun, options, drop], {A: stopped(5)}, a=5).needless) == []
    shared = ddl(7, DdlType.MODIFY, A, B)
    assert increments(waiting([shared, options, drop], {A: stopped(5)}, a=5, b=7).needless) == []


def test_only_a_stop_without_history_is_lost() -> None:
    lost = ErrorReport.of(HistoryLost("gone"), NOW)
    assert stopped(5, lost).lost
    assert not stopped(5).lost
    assert not going(5).lost


def test_nothing_is_there_of_a_table_whose_create_waits_for_a_stopped_one() -> None:
    """It has no record yet: a reader that was told of more would leave out the create, and all that follows."""
    records = [
        ddl(9, DdlType.RENAME, B, names="be"),
        ddl(10, DdlType.CREATE, names="b", creates=C),
        ddl(11, DdlType.CREATE_INDEXES, C, names="b"),
        ddl(12, DdlType.CREATE, names="d", creates=D),
    ]
    assert behind({B: stopped(5)}, records, at(12)) == {B: at(5), C: at(10)}
    done = [replace(record, state=DdlState.DONE) for record in records]
    assert behind({C: going(10)}, done, at(12)) == {C: at(10)}


def test_a_dropped_database_that_waits_for_one_of_its_tables_is_there_of_none() -> None:
    records = [ddl(10, DdlType.DROP_DATABASE, A, B, ended=(A, B))]
    waits = waiting(records, {A: going(5)}, a=5, b=10)
    assert (increments(waits.blocked), waits.standing) == ([10], frozenset({B}))
    assert behind({A: going(5)}, records, at(12)) == {A: at(5), B: at(10)}
