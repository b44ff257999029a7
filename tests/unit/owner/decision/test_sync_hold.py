from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from changefeed.cluster_time import ClusterTime
from changefeed.config.tables.filter import Disposition
from changefeed.documents.document import Document
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, Scope
from changefeed.table import TableId, TableName
from owner.decision.sync_hold import (
    ARRIVES_WITHIN,
    HELD_AT_MOST,
    MOST_EXCEPTED,
    Course,
    MarkTarget,
    MissPoint,
    SyncHold,
    TablesThere,
    excepted_too,
    names_at,
    place_of,
)
from schema_store.versions import SchemaVersions

A, B = TableId("a" * 32), TableId("b" * 32)
EVERY = timedelta(seconds=60)
POINT = ClusterTime(120, 0)
PLACE = Position(ClusterTime(120, 1))


def course(published: str, *, newest: str = "", furthest: str = "", settled: int = 0) -> Course:
    at = Position.parse(published)
    return Course(
        published=at,
        newest=Position.parse(newest) if newest else at,
        furthest=Position.parse(furthest) if furthest else at,
        settled_ts=ClusterTime(settled, 0),
    )


def name(text: str) -> TableName:
    return TableName("shop", text)


def names(table: TableId) -> tuple[TableName, TableName]:
    short = table.strip("0") if table[0] == "0" else table[0]
    return TableName("shop", short), TableName("copy", short)


def tables(
    *,
    elsewhere: AbstractSet[TableId] | None = frozenset(),
    aside: Mapping[TableId, str] = MappingProxyType({}),
    open_ddls: tuple[DdlRecord, ...] = (),
) -> TablesThere:
    return TablesThere(elsewhere=elsewhere, aside=aside, name_of=names, open_ddls=open_ddls)


def look(hold: SyncHold, there: TablesThere | None = None, *, at: Position = PLACE, now: float = 0.0):  # type: ignore[no-untyped-def]
    return hold.look(at, lambda _: there or tables(), now)


def held() -> SyncHold:
    return SyncHold().aimed(EVERY, course("120.1"))


def rename(*, refused: bool = False) -> DdlRecord:
    at = Position(ClusterTime(119, 5), "00")
    event = DdlEvent(
        type=DdlType.RENAME,
        db="shop",
        position=at,
        id=A,
        table=TableName("shop", "a"),
        renamed_to=TableName("shop", "z"),
        description=Document.of({}),
    )
    scope = Scope(tables=frozenset({A}), names=frozenset({TableName("copy", "a"), TableName("copy", "z")}))
    why = ErrorReport(code="ddl_refused", message="no", retryable=False, at=datetime(2026, 1, 1, tzinfo=UTC))
    return DdlRecord(
        event=event,
        scope=scope,
        disposition=Disposition.APPLY,
        seen_at=datetime(2026, 1, 1, tzinfo=UTC),
        refused=why if refused else None,
    )


def test_a_point_is_the_next_multiple_that_the_barrier_has_not_passed() -> None:
    assert SyncHold().aimed(EVERY, course("61.7")).ts == POINT
    assert SyncHold().aimed(EVERY, course("120.0")).ts == POINT
    assert SyncHold().aimed(EVERY, course("120.2")).ts == ClusterTime(180, 0)


def test_a_new_owner_finds_the_point_at_which_the_barrier_stands() -> None:
    assert SyncHold().aimed(EVERY, course("120.1")).ts == POINT
    assert place_of(POINT) == PLACE


def test_what_is_made_or_given_up_is_not_held_again() -> None:
    assert held().over().aimed(EVERY, course("120.1")).ts == ClusterTime(180, 0)
    assert SyncHold().after(POINT).aimed(EVERY, course("120.1")).ts == ClusterTime(180, 0)


def test_a_changefeed_that_is_behind_lets_points_pass() -> None:
    assert SyncHold().aimed(EVERY, course("61.7", newest="200.1")).ts is None
    assert SyncHold().aimed(EVERY, course("119.7", furthest="30.1")).ts is None
    assert SyncHold().aimed(timedelta(hours=1), course("61.7", newest="3900.1")).ts is None


def test_a_point_comes_after_all_rows_that_an_earlier_run_may_have_read() -> None:
    unknown = Course(
        published=Position.parse("61.7"),
        newest=Position.parse("61.7"),
        furthest=Position.parse("61.7"),
        settled_ts=None,
    )
    assert SyncHold().aimed(EVERY, unknown).ts is None
    assert SyncHold().aimed(EVERY, course("61.7", settled=121)).ts is None


def test_nothing_is_done_before_the_barrier_stands_there() -> None:
    hold = SyncHold().aimed(EVERY, course("61.7"))
    assert look(hold, at=Position.parse("61.7")) == (hold, None)


def test_the_target_is_marked_when_all_tables_are_there() -> None:
    hold, step = look(held())
    assert step == MarkTarget(POINT, ())
    assert hold.mark is step
    assert look(hold, now=0.1) == (hold, None)


def test_a_table_on_its_way_is_awaited_for_a_second_and_excepted_then() -> None:
    there = tables(elsewhere=frozenset({B}))
    hold, step = look(held(), there)
    assert step is None
    _, step = look(hold, there, now=ARRIVES_WITHIN)
    assert isinstance(step, MarkTarget)
    assert [(each.source, each.target) for each in step.excepted] == [
        ((TableName("shop", "b"),), (TableName("copy", "b"),))
    ]


def test_a_table_that_stands_aside_is_excepted_at_once() -> None:
    _, step = look(held(), tables(elsewhere=frozenset({B}), aside={B: "it is stopped"}))
    assert isinstance(step, MarkTarget)
    assert [each.why for each in step.excepted] == ["it is stopped"]


def test_a_stopped_table_is_excepted_wherever_it_is() -> None:
    _, step = look(held(), tables(aside={B: "it is stopped"}))
    assert isinstance(step, MarkTarget)
    assert len(step.excepted) == 1


def test_an_open_ddl_is_awaited_and_excepts_all_its_names() -> None:
    there = tables(elsewhere=frozenset({A}), open_ddls=(rename(),))
    hold, step = look(held(), there)
    assert step is None
    _, step = look(hold, there, now=ARRIVES_WITHIN)
    assert isinstance(step, MarkTarget)
    [ddl] = [each for each in step.excepted if len(each.source) > 1]
    assert set(ddl.source) == {TableName("shop", "a"), TableName("shop", "z")}
    assert set(ddl.target) == {TableName("copy", "a"), TableName("copy", "z")}


def test_a_ddl_that_waits_for_a_user_is_not_awaited() -> None:
    _, step = look(held(), tables(open_ddls=(rename(refused=True),)))
    assert isinstance(step, MarkTarget)
    assert len(step.excepted) == 1


def test_a_hold_is_over_after_two_seconds_whatever_is_known() -> None:
    marked, _ = look(held())
    _, step = look(marked, now=HELD_AT_MOST)
    assert step == MissPoint(POINT, "the target did not answer in time")


def test_too_many_tables_elsewhere_give_the_point_up() -> None:
    hold, _ = look(held(), tables(elsewhere=None))
    _, step = look(hold, tables(elsewhere=None), now=ARRIVES_WITHIN)
    assert isinstance(step, MissPoint)
    many = {TableId(f"0{number:030}1"): "it is being copied" for number in range(MOST_EXCEPTED + 1)}
    _, step = look(held(), tables(aside=many))
    assert isinstance(step, MissPoint)


def test_another_interval_or_a_pause_leaves_nothing_behind() -> None:
    marked, _ = look(held())
    assert marked.aimed(timedelta(seconds=90), course("120.1")) == SyncHold(ts=ClusterTime(180, 0))
    assert marked.aimed(None, None) == SyncHold()
    assert marked.aimed(EVERY, course("120.1")) is marked


def test_what_only_the_target_knew_is_excepted_too_and_once() -> None:
    known = excepted_too((), {A: "it has dead letters"}, names)
    assert [each.target for each in known] == [(TableName("copy", "a"),)]
    assert excepted_too(known, {A: "it has newer rows"}, names) == known


def test_a_table_has_the_name_that_it_had_at_the_point() -> None:
    """One that the source drops later is there, too, with its rows missing downstream."""
    create = DdlEvent(
        type=DdlType.CREATE, db="shop", position=Position(ClusterTime(118, 1), "00"), id=A, table=name("a")
    )
    rename = replace(create, type=DdlType.RENAME, position=Position(ClusterTime(121, 1), "00"), renamed_to=name("z"))
    drop = replace(create, type=DdlType.DROP, position=Position(ClusterTime(123, 1), "00"), table=name("z"))
    tip = SchemaVersions.of(()).apply_all((create, rename, drop))

    def at(seconds: int) -> tuple[TableName, TableName] | None:
        return names_at(place_of(ClusterTime(seconds, 0)), tip, lambda each: each)(A)

    assert [at(seconds) for seconds in (118, 121, 123, 124)] == [None, (name("a"),) * 2, (name("z"),) * 2, None]
