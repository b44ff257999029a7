"""What becomes of stragglers and of users' requests, one rule per test; the machines and the simulation try sequences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import cast

from changefeed.cluster_time import ClusterTime
from changefeed.errors import DdlRefused, HistoryLost, InvariantError, RowRejected, SinkUnavailable
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Scope
from changefeed.records.node import NodeId
from changefeed.records.requests import TableVerb
from changefeed.records.status import Straggler
from changefeed.table import TableId, TableName
from owner.ddl.stragglers import StoredStraggler, Waiting
from owner.tables.progress import Floor, TableProgress
from owner.tables.wishes import Forget, Mark, Resume, TableWishes, Wished, after_release, wished

NOW = datetime(2026, 11, 22, tzinfo=UTC)
A, B = TableId("a" * 32), TableId("b" * 32)
N1, N2 = NodeId("n1"), NodeId("n2")
BUG = ErrorReport.of(InvariantError("a bug"), NOW)
REFUSED = ErrorReport.of(DdlRefused("not like this"), NOW)
REJECTED = ErrorReport.of(RowRejected("not like this"), NOW)
LOST = ErrorReport.of(HistoryLost("gone"), NOW)


def at(increment: int) -> Position:
    return Position(ClusterTime(100, increment))


def ddl(increment: int, *tables: TableId, refused: bool = True, type: DdlType = DdlType.CREATE_INDEXES) -> DdlRecord:
    return DdlRecord(
        event=DdlEvent(position=at(increment), type=type, db="shop", table=TableName("shop", "x"), id=tables[0]),
        scope=Scope(tables=frozenset(tables)),
        refused=REFUSED if refused else None,
        seen_at=NOW,
    )


@dataclass
class Places:
    places: Mapping[TableId, Position]
    obeyed: bool = True
    failing: Mapping[TableId, ErrorReport] = field(default_factory=dict)
    retrying: Mapping[TableId, ErrorReport] = field(default_factory=dict)
    home: NodeId = N1

    def of(self, table: TableId) -> Position | None:
        return self.places.get(table)

    def obeys(self, table: TableId, stop_rev: int) -> bool:
        return self.obeyed

    def failed(self, run: int) -> Iterable[tuple[TableId, NodeId, ErrorReport]]:
        return [(table, self.home, error) for table, error in self.failing.items()]

    def retried(self, run: int) -> Iterable[tuple[TableId, NodeId, ErrorReport]]:
        return [(table, self.home, error) for table, error in self.retrying.items()]


def stored(increment: int, *, stopped: bool = False, error: ErrorReport | None = None) -> StoredStraggler:
    return StoredStraggler(Straggler(at=at(increment), stopped=stopped, error=error, since=NOW), 7)


def answers(
    wishes: TableWishes,
    places: Places,
    *records: DdlRecord,
    waiting: Waiting | None = None,
    passed: int = 20,
    run: int | None = 1,
) -> list[Wished]:
    wishes = replace(wishes, replicated=wishes.replicated or frozenset(places.places))
    by_position = {record.position: record for record in records}
    found = wished(
        wishes,
        by_position,
        waiting or Waiting(),
        cast("TableProgress", places),
        at(passed),
        but=set(),
        run=run,
        now=NOW,
    )
    return list(found)


def test_a_table_that_cannot_go_on_is_marked_where_it_stands() -> None:
    places = Places({A: at(5)}, failing={A: REJECTED})
    [mark] = answers(TableWishes(), places)
    assert mark == Mark(A, Straggler(at=at(5), stopped=True, error=REJECTED, since=NOW))
    assert answers(TableWishes(), places, run=None) == [], "what it says counts only in its run"


def test_a_table_that_is_stopped_already_is_not_stopped_again() -> None:
    places = Places({A: at(5)}, failing={A: REJECTED})
    assert answers(TableWishes(stragglers={A: stored(5, stopped=True)}), places) == []


def test_a_table_that_fails_for_an_unknown_reason_is_tried_once_on_another_node() -> None:
    wishes, on_n1 = TableWishes(processors={N1, N2}), Places({A: at(25)}, failing={A: BUG})
    moved = Straggler(at=at(25), error=BUG, moved_from=N1, since=NOW)
    assert answers(wishes, on_n1) == [Mark(A, moved, moves_to=N2)]
    tried = replace(wishes, moving={A}, stragglers={A: StoredStraggler(moved, 7)})
    assert answers(tried, on_n1) == [], "it is on its way, and not forgotten though it is at the checkpoint"
    left = replace(tried, moving=frozenset())
    assert answers(left, on_n1) == [Mark(A, moved, moves_to=N2)], "the other node had gone, and is back"
    stopped = replace(moved, moved_from=None, stopped=True)
    assert answers(replace(left, processors={N1}), on_n1) == [Mark(A, stopped)], "there is no other node any more"
    on_n2 = replace(on_n1, home=N2)
    assert answers(tried, on_n2) == [Mark(A, Straggler(at=at(25), stopped=True, error=BUG, since=NOW))]
    assert answers(tried, Places({A: at(26)}, home=N2)) == [Forget(stragglers=frozenset({A}))]
    alone = TableWishes(processors={N1})
    assert answers(alone, on_n1) == [Mark(A, Straggler(at=at(25), stopped=True, error=BUG, since=NOW))]


def test_a_table_that_fails_again_and_again_goes_on_trying_on_another_node() -> None:
    busy = ErrorReport.of(SinkUnavailable("its shard is away"), NOW)
    wishes, on_n1 = TableWishes(processors={N1, N2}), Places({A: at(25)}, retrying={A: busy})
    moved = Straggler(at=at(25), error=busy, moved_from=N1, since=NOW)
    assert answers(wishes, on_n1) == [Mark(A, moved, moves_to=N2)]
    tried = replace(wishes, stragglers={A: StoredStraggler(moved, 7)})
    assert answers(tried, on_n1) == []
    assert answers(tried, replace(on_n1, home=N2)) == [], "it is moved once, and nothing stops it"
    assert answers(TableWishes(processors={N1}), on_n1) == [], "there is no other node"


def test_a_table_at_a_blocked_ddl_is_marked_before_the_checkpoint_passes_it() -> None:
    waiting = Waiting(standing=frozenset({A}))
    assert answers(TableWishes(), Places({A: at(7)}), waiting=waiting) == [Mark(A, Straggler(at=at(7), since=NOW))]


def test_a_straggler_without_history_is_stopped_for_good() -> None:
    wishes = TableWishes(stragglers={A: stored(5)}, lost={A: LOST})
    [mark] = answers(wishes, Places({A: at(6)}))
    assert mark == Mark(A, Straggler(at=at(6), stopped=True, error=LOST, since=NOW))
    asked = TableWishes(stragglers={A: stored(5, stopped=True, error=LOST)}, requests={A: TableVerb.RESUME})
    assert answers(asked, Places({A: at(5)}), waiting=Waiting(standing=frozenset({A}))) == [
        Forget(requests=frozenset({A}))
    ]


def test_a_resume_waits_until_the_node_obeys_the_stop() -> None:
    wishes = TableWishes(stragglers={A: stored(5, stopped=True, error=REJECTED)}, requests={A: TableVerb.RESUME})
    waiting = Waiting(standing=frozenset({A}))
    assert answers(wishes, Places({A: at(5)}, obeyed=False), waiting=waiting) == []
    [resume] = answers(wishes, Places({A: at(5)}), waiting=waiting)
    assert resume == Resume(A, Straggler(at=at(5), since=NOW)), "it keeps its own position until it has caught up"


def test_a_resume_tries_the_refused_ddls_of_the_table_again() -> None:
    wishes = TableWishes(requests={A: TableVerb.RESUME})
    [resume] = answers(wishes, Places({A: at(7)}), ddl(7, A), ddl(9, B))
    assert resume == Resume(A, None, (replace(ddl(7, A), refused=None),))


def test_a_table_that_is_about_to_end_is_not_resumed_but_its_refused_ddl_is_tried_again() -> None:
    wishes = TableWishes(stragglers={A: stored(5, stopped=True)}, requests={A: TableVerb.RESUME})
    ending = Waiting(standing=frozenset({A}), ending={A: at(9)}, passed=frozenset({A}))
    assert answers(wishes, Places({A: at(5)}), waiting=ending) == [Forget(requests=frozenset({A}))]
    rename = ddl(7, A, type=DdlType.RENAME)
    assert answers(wishes, Places({A: at(5)}), rename, waiting=ending) == [
        Resume(A, None, (replace(rename, refused=None),))
    ]


def test_a_stopped_table_that_has_ended_is_not_resumed() -> None:
    """Its drop is done, and its record not removed yet. Its copy would begin, with what has its name at the source by now."""
    wishes = TableWishes(
        stragglers={A: stored(5, stopped=True)}, requests={A: TableVerb.RESUME}, replicated=frozenset({B})
    )
    assert answers(wishes, Places({A: at(5)})) == [Forget(requests=frozenset({A}))]
    assert answers(wishes, Places({})) == [Forget(requests=frozenset({A}), stragglers=frozenset({A}))]


def test_a_user_stops_a_table_once() -> None:
    wishes = TableWishes(requests={A: TableVerb.STOP})
    [mark] = answers(wishes, Places({A: at(5)}))
    assert mark == Mark(A, Straggler(at=at(5), stopped=True, since=NOW), answers=True)
    again = replace(wishes, stragglers={A: stored(5, stopped=True)})
    assert answers(again, Places({A: at(5)}), waiting=Waiting(standing=frozenset({A}))) == [
        Forget(requests=frozenset({A}))
    ]


def test_a_straggler_is_forgotten_when_it_has_caught_up_and_nothing_holds_it() -> None:
    wishes = TableWishes(stragglers={A: stored(5)})
    assert answers(wishes, Places({A: at(19)})) == []
    assert answers(wishes, Places({A: at(20)})) == [Forget(stragglers=frozenset({A}))]
    assert answers(wishes, Places({A: at(20)}), waiting=Waiting(standing=frozenset({A}))) == []


def test_a_straggler_that_has_ended_is_forgotten_when_no_node_has_it() -> None:
    wishes = TableWishes(stragglers={A: stored(5, stopped=True)}, replicated=frozenset({B}))
    still_there, gone = Places({A: at(5), B: at(20)}), Places({B: at(20)})
    waiting = Waiting(standing=frozenset({A}))
    assert answers(wishes, still_there, waiting=waiting) == []
    assert answers(wishes, gone, waiting=waiting) == [Forget(stragglers=frozenset({A}))]


def test_a_wish_to_skip_what_is_not_refused_is_forgotten() -> None:
    wishes = TableWishes(skips={at(7), at(8), at(9)})
    records = ddl(7, A), ddl(8, A, type=DdlType.RENAME), ddl(9, A, refused=False)
    assert answers(wishes, Places({A: at(7)}), *records) == [Forget(skips=frozenset({at(8), at(9)}))]


def test_a_release_moves_the_stragglers_that_it_touches_but_not_those_that_end() -> None:
    done = replace(ddl(9, A, B, refused=False), state=DdlState.DONE)
    stragglers = {A: stored(5), B: stored(4, stopped=True)}
    ending = Waiting(ending={B: at(12)})
    assert after_release([done], stragglers, ending, at(20), NOW) == {A: replace(stored(5).record, at=at(9))}


def test_what_a_ddl_below_the_checkpoint_creates_begins_as_a_straggler() -> None:
    created = replace(ddl(9, A, refused=False, type=DdlType.CREATE), scope=Scope(), state=DdlState.DONE)
    assert after_release([created], {}, Waiting(), at(20), NOW) == {A: Straggler(at=at(9), since=NOW)}
    assert after_release([created], {}, Waiting(), at(9), NOW) == {}
    lost = ErrorReport(code="history_lost", message="gone", retryable=False, at=NOW)
    begun = after_release([created], {}, Waiting(), at(9), NOW, lost={A: lost})
    assert begun == {A: Straggler(at=at(9), stopped=True, error=lost, since=NOW)}


def test_a_table_whose_create_was_skipped_begins_stopped() -> None:
    skipped = replace(ddl(9, A, type=DdlType.CREATE), scope=Scope(), state=DdlState.SKIPPED)
    assert after_release([skipped], {}, Waiting(), at(5), NOW) == {A: Straggler(at=at(9), stopped=True, since=NOW)}


def test_a_new_owner_takes_a_straggler_to_be_where_its_record_says_and_all_others_at_the_checkpoint() -> None:
    floor = Floor(at(20), [], {A: stored(5).record, B: stored(25).record})
    assert (floor.of(A), floor.of(B), floor.of(TableId("c" * 32))) == (at(5), at(20), at(20))
    executing = replace(ddl(9, A, refused=False), state=DdlState.EXECUTING)
    assert Floor(at(20), [executing], {A: stored(5).record}).of(A) == at(9)


def test_a_repair_is_left_to_its_tables_node_and_forgotten_with_the_table() -> None:
    wishes = TableWishes(repairs={A, B}, replicated=frozenset({A}))
    assert answers(wishes, Places({A: at(5)})) == [Forget(repairs=frozenset({B}))]
