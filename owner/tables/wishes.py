"""`wished`: what becomes of the stragglers, and of the requests of users about tables. Pure.

The first column is what this decision knows, the second its action:

    a node says that a table cannot go on              Mark, stopped: the others have gone on already
    it cannot say whether that is its own fault        Mark, to be moved to another node; again, if that one has gone meanwhile;
                                                       stopped, if it fails there too, or if there is no other one
    a table fails again and again, others do not       Mark, to be moved to another node, which goes on trying; once
    a user asks to stop a table                        Mark, stopped
    a straggler's history is lost                      Mark, stopped for good
    a table has reached a blocked DDL                  Mark, before the checkpoint passes it
    it has reached one that takes its name from it     Mark, stopped for good
    a user asks to resume a stopped table              Resume, once its node obeys the stop: an older report says no more about the table
    a user asks to resume a table of a refused DDL     Resume: the DDL is tried again
    a straggler has caught up                          Forget
    a straggler has ended                              Forget, once no node has it: until then its node would go on with it
    a user asks to copy a table anew                   DDLs of Sluice's own, which answer it
    a user asks for what cannot be                     Forget: the table has ended or is about to, its history is lost, or its name is taken
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import TypeAlias

from changefeed.errors import HistoryLost, InvariantError
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState
from changefeed.records.node import NodeId
from changefeed.records.requests import TableVerb
from changefeed.records.status import Straggler
from changefeed.table import COPY_ANEW, TableId
from owner.ddl.stragglers import SKIPPABLE, StoredStraggler, Waiting, known_tables, name_is_taken, nameless
from owner.tables.progress import TableProgress

_MOST = 64
"""Tables that are marked in one decision, since each is a transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWishes:
    """The stragglers, and the requests of users. `replicated`: the tables that there are."""

    stragglers: Mapping[TableId, StoredStraggler] = field(default_factory=dict)
    requests: Mapping[TableId, TableVerb] = field(default_factory=dict)
    repairs: AbstractSet[TableId] = frozenset()
    """Tables with rows that are to be repaired. Their nodes do it."""
    skips: AbstractSet[Position] = frozenset()
    lost: Mapping[TableId, ErrorReport] = field(default_factory=dict)
    """Stragglers whose history the source no longer has."""
    lost_from_the_start: Mapping[TableId, ErrorReport] = field(default_factory=dict)
    """Tables that begin with a DDL which is not done, and whose first rows the source no longer has."""
    replicated: AbstractSet[TableId] = frozenset()
    processors: AbstractSet[NodeId] = frozenset()
    """The nodes that take tables."""
    moving: AbstractSet[TableId] = frozenset()
    """The tables that are on their way to another node, or are to be."""


@dataclass(frozen=True, slots=True)
class Mark:
    """`answers`: a user asked for it. `moves_to`: the table is to be moved there."""

    table: TableId
    straggler: Straggler
    answers: bool = False
    moves_to: NodeId | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Answers a request: the DDLs are tried again, and the straggler goes on, with the answer."""

    table: TableId
    straggler: Straggler | None
    records: tuple[DdlRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    requests: frozenset[TableId] = frozenset()
    repairs: frozenset[TableId] = frozenset()
    skips: frozenset[Position] = frozenset()
    stragglers: frozenset[TableId] = frozenset()


Wished: TypeAlias = Mark | Resume | Forget


def wished(
    wishes: TableWishes,
    records: Mapping[Position, DdlRecord],
    waiting: Waiting,
    places: TableProgress,
    passed: Position,
    *,
    but: AbstractSet[TableId],
    run: int | None,
    now: datetime,
) -> Iterator[Wished]:
    """`passed`: the changefeed's checkpoint. `but`: tables whose record is changing. `run`: of the pipelines; None while none are to run."""
    without_name = nameless(records.values())
    marks = _marks(wishes, without_name, waiting, places, run=run, now=now)
    marked = {mark.table: mark for mark in islice((mark for mark in marks if mark.table not in but), _MOST)}
    yield from marked.values()
    idle = set[TableId]()
    for table, verb in sorted(wishes.requests.items()):
        stored = wishes.stragglers.get(table)
        stopped = stored is not None and stored.record.stopped
        if table in marked or table in but or verb is TableVerb.RECOPY:
            continue
        if verb is TableVerb.RESUME:
            there = stored if table in wishes.replicated else None
            answer = _resumed(table, there, records.values(), without_name, waiting, places)
            if answer is None:
                idle.add(table)
            else:
                yield from answer
        elif stopped or table not in wishes.replicated:
            idle.add(table)
        elif (at := places.of(table)) is not None:
            yield Mark(table, _straggler(stored, at, now, stopped=True), answers=True)
    skipped = {position for position in wishes.skips if not _may_be_skipped(records.get(position))}
    ended = {table for table in wishes.stragglers if table not in wishes.replicated and places.of(table) is None}
    over = (caught_up(wishes.stragglers, waiting, places, passed) | ended) - marked.keys() - but
    homeless = frozenset(table for table in wishes.repairs if table not in wishes.replicated)
    if idle or homeless or skipped or over:
        yield Forget(requests=frozenset(idle), repairs=homeless, skips=frozenset(skipped), stragglers=frozenset(over))


def _marks(
    wishes: TableWishes,
    without_name: Mapping[TableId, DdlRecord],
    waiting: Waiting,
    places: TableProgress,
    *,
    run: int | None,
    now: datetime,
) -> Iterator[Mark]:
    known = wishes.stragglers
    failed = {table: (node, error) for table, node, error in (places.failed(run) if run is not None else ())}
    for table, (node, error) in sorted(failed.items()):
        stored, at = known.get(table), places.of(table)
        moved_from = stored.record.moved_from if stored else None
        on_its_way = moved_from == node and table in wishes.moving
        if at is None or (stored is not None and stored.record.stopped) or on_its_way:
            continue
        others = sorted(wishes.processors - {node})
        if error.code == InvariantError.code and moved_from in (None, node) and others:
            tried = replace(_straggler(stored, at, now, error=error), moved_from=node)
            yield Mark(table, tried, moves_to=others[0])
        else:
            yield Mark(table, _straggler(stored, at, now, stopped=True, error=error))
    for table, node, error in sorted(places.retried(run) if run is not None else (), key=lambda each: each[0]):
        others = sorted(wishes.processors - {node})
        if (at := places.of(table)) is not None and table not in known and table not in failed and others:
            elsewhere = replace(_straggler(None, at, now, error=error), moved_from=node)
            yield Mark(table, elsewhere, moves_to=others[0])
    for table, error in sorted(wishes.lost.items()):
        if (at := places.of(table)) is not None and table not in failed:
            yield Mark(table, _straggler(known.get(table), at, now, stopped=True, error=error))
    yield from _standing_marks(wishes, without_name, waiting.standing - failed.keys() - wishes.lost.keys(), places, now)


def _standing_marks(
    wishes: TableWishes,
    without_name: Mapping[TableId, DdlRecord],
    standing: AbstractSet[TableId],
    places: TableProgress,
    now: datetime,
) -> Iterator[Mark]:
    """Of tables that wait for a DDL which waits for a user, and of those whose name at the target is taken."""
    known = wishes.stragglers
    for table in sorted(standing & without_name.keys()):
        stored, at, taken = known.get(table), places.of(table), without_name[table]
        if at == taken.position and not (stored is not None and stored.record.stopped):
            yield Mark(table, _straggler(stored, at, now, stopped=True, error=taken.refused))
    for table in sorted(standing - known.keys()):
        if (at := places.of(table)) is not None and not (table in without_name and at == without_name[table].position):
            yield Mark(table, Straggler(at=at, since=now))


def _straggler(
    stored: StoredStraggler | None,
    at: Position,
    now: datetime,
    *,
    stopped: bool = False,
    error: ErrorReport | None = None,
) -> Straggler:
    at = max(at, stored.record.at) if stored else at
    return Straggler(at=at, stopped=stopped, error=error, since=now)


def _resumed(
    table: TableId,
    stored: StoredStraggler | None,
    records: Iterable[DdlRecord],
    without_name: Mapping[TableId, DdlRecord],
    waiting: Waiting,
    places: TableProgress,
) -> tuple[Resume, ...] | None:
    """None: there is nothing to resume. Empty: later."""
    ending = table in waiting.ending
    stopped = stored if stored is not None and stored.record.stopped and not ending else None
    tried_again = tuple(
        replace(record, refused=None)
        for record in records
        if record.open and record.refused is not None and not name_is_taken(record) and table in known_tables(record)
    )
    if table in without_name and name_is_taken(without_name[table]):
        return None
    if (stopped is None and not tried_again) or (stopped is not None and stopped.lost):
        return None
    if stopped is not None and not places.obeys(table, stopped.rev):
        return ()
    goes_on = replace(stopped.record, stopped=False, error=None, moved_from=None) if stopped else None
    return (Resume(table, goes_on, tried_again),)


def _may_be_skipped(record: DdlRecord | None) -> bool:
    return record is not None and record.open and record.refused is not None and record.event.type in SKIPPABLE


def caught_up(
    stragglers: Mapping[TableId, StoredStraggler], waiting: Waiting, places: TableProgress, passed: Position
) -> AbstractSet[TableId]:
    """The stragglers that are not behind the changefeed's checkpoint, and that nothing holds back.

    One that was moved because it failed has to get further than it was, too.
    """
    going = {table: places.of(table) for table in stragglers.keys() - waiting.standing}
    return {
        table
        for table, at in going.items()
        if at is not None and at >= passed
        if stragglers[table].record.moved_from is None or at > stragglers[table].record.at
    }


def after_release(
    released: Iterable[DdlRecord],
    stragglers: Mapping[TableId, StoredStraggler],
    waiting: Waiting,
    passed: Position,
    now: datetime,
    *,
    lost: Mapping[TableId, ErrorReport] = {},
) -> Mapping[TableId, Straggler]:
    """The records of stragglers that change with the release of DDLs: a table is not before a DDL of it that is done, unless it is ending.

    A table that a DDL below the changefeed's checkpoint creates begins as a straggler, and so does one that was a straggler when it ended. A table
    without its create begins stopped: it is about to end. So does one that is `lost` from its beginning.
    """
    found: dict[TableId, Straggler] = {}
    for record in sorted(released, key=lambda record: record.position.order):
        for table in (record.scope.tables & stragglers.keys()) - waiting.ending.keys():
            before = stragglers[table].record
            found[table] = replace(before, at=max(before.at, record.position))
        born = record.event.id if record.event.id not in record.scope.tables else None
        missing = record.state is DdlState.SKIPPED and record.refused is not None
        if born is not None and (missing or record.position < passed or born in stragglers or born in lost):
            stopped = missing or born in lost
            found[born] = Straggler(at=record.position, stopped=stopped, error=lost.get(born), since=now)
    return found


_MOST_WAITING = 1_000
"""Of one table. They run one after another when it goes on."""
_MOST_WAITING_BYTES = 1_000_000
"""Of their descriptions. In etcd they are several times larger."""
_MOST_IN_ALL = 10_000


def outgrown(
    records: Iterable[DdlRecord],
    stragglers: Mapping[TableId, StoredStraggler],
    waiting: Waiting,
    can_be_copied: Callable[[TableId], bool],
    now: datetime,
) -> dict[TableId, ErrorReport]:
    """Return the tables that stand still and of which more DDLs wait than are kept, with the reason for each.

    The DDLs of a table that stands wait with it, in etcd and in the owner's memory, for as long as the source has its rows: days, and a program may
    change the options of a table every second. So too many of them end the table's wait: it is lost, as if the source had forgotten its rows, and
    goes on by being copied anew. From then on no DDL of it is recorded but those that end or rename it (`recording.py`).

        waiting of     a 1001   b 900, stopped   c 2000, held up by nothing       a is lost
        in all         of 12 standing tables 900 each                             the first is lost, then 9900 are left

    A table that cannot be copied anew is not given up: the source's oplog bounds what waits for it.
    """
    if not waiting.standing:
        return {}
    counts, sizes, ending = Counter[TableId](), Counter[TableId](), set[TableId]()
    for record in records:
        table = record.event.id
        if not record.open:
            continue
        ending |= record.scope.ended
        if table in waiting.standing and record.event.type in SKIPPABLE:
            counts[table] += 1
            sizes[table] += len(record.event.description.raw)
    kept = {
        table: count
        for table, count in counts.items()
        if table not in ending and not (table in stragglers and stragglers[table].lost) and can_be_copied(table)
    }
    in_all, lost = sum(kept.values()), dict[TableId, ErrorReport]()
    for table, count in sorted(kept.items(), key=lambda each: (-each[1], each[0])):
        if count > _MOST_WAITING or sizes[table] > _MOST_WAITING_BYTES or in_all > _MOST_IN_ALL:
            in_all -= count
            lost[table] = ErrorReport.of(_lost(count).about(table), now)
    return lost


def _lost(count: int) -> HistoryLost:
    return HistoryLost(f"it stands still, and {count} DDLs of it wait, more than are kept; {COPY_ANEW}")
