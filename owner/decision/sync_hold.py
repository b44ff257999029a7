"""`SyncHold`: how a changefeed comes to a point at which source and target are equal. Pure.

A sync point is a time T of the source, a whole second with the increment 0, which no entry has. Its place is just after T: a place between
events, never inside a transaction. The barrier stops there until each table has come to it, and something is written into the target: its time C
is later than every row below the point, and earlier than every row past it.

    T = 120.0, its place 120.1      barrier        tables          what is done
    resolved 119.7                  119.7          119.6           nothing: the point lies ahead
    resolved 121.3                  120.1, held    a 120.1, b 119  nothing: b is waited for, a second at most
                                    held           both 120.1      MarkTarget: the target is written, C = 885.4
    C is known                      held                           the point is recorded in etcd, by this term: T, C, and what is excepted
    -                               121.3                          the record in the target gets its `done`, from what etcd has

    NothingIsHeldForAnOldPoint      a changefeed that is further behind than `every` lets points pass
    AHoldIsShort                    two seconds after the barrier came to the place it goes on, whatever is known by then
    ATableThatIsNotThereIsExcepted  a straggler, a table in copy, one of an open DDL, one whose node is away. Too many: the point is given up
    AnAnswerCountsForItsOwnHold     an answer that comes after the hold is over is void: rows past the place may be older than its C

Crash just after      what it means
the barrier stands    the place is in etcd as the barrier: the next owner finds the same T, and its hold begins anew
the target's mark     without `done` it proves nothing. The next owner marks again, with a later C
the point in etcd     the next owner writes the record in the target from it, again: the same words
the target's `done`   as above
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import timedelta

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.records.sync_point import ExceptedTable
from changefeed.table import TableId, TableName
from schema_store.versions import SchemaVersions

ARRIVES_WITHIN = 1.0
HELD_AT_MOST = 2.0
"""Seconds after the barrier has come to a point."""
_NOT_OLDER = timedelta(seconds=240)
"""Than what a server keeps of its history, with time to read it."""
_LATE = timedelta(seconds=10)
"""From here on a changefeed is late for a point that a user wants now."""
MOST_EXCEPTED = 100
ONE_SECOND = timedelta(seconds=1)

NameOf = Callable[[TableId], tuple[TableName, TableName] | None]
"""A table's name at the source and at the target, as of a point. None for one that had ended by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How far a changefeed that runs is."""

    published: Position
    """Where the barrier is in etcd."""
    newest: Position
    """Up to where the source's changes may be replicated now."""
    furthest: Position
    """Where most tables of some node are: one table that is behind is excepted, when all are the changefeed is."""
    settled_ts: ClusterTime | None
    """Rows that were read at the source before this run are older. None: not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesThere:
    """Where the tables are while the barrier stands at a point."""

    elsewhere: AbstractSet[TableId] | None
    """Those that are not at the place. None: too many to name."""
    aside: Mapping[TableId, str]
    """Tables that are not waited for, each with the reason."""
    name_of: NameOf
    open_ddls: tuple[DdlRecord, ...] = ()
    """Below the place."""


@dataclass(frozen=True, slots=True)
class MarkTarget:
    """Write the target: nothing of the changefeed's rows is past the place, and all below it is there, but of the excepted tables."""

    ts: ClusterTime
    excepted: tuple[ExceptedTable, ...]


@dataclass(frozen=True, slots=True)
class MissPoint:
    ts: ClusterTime
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncHold:
    """What one owner knows of the point that comes next. Moments are its monotonic seconds."""

    passed: ClusterTime | None = None
    """The newest point that was made or given up."""
    ts: ClusterTime | None = None
    """The point at which the barrier stands, or will."""
    since: float | None = None
    """When the barrier was first seen to stand there."""
    mark: MarkTarget | None = None
    """The target is being written for it."""

    @property
    def place(self) -> Position | None:
        return None if self.ts is None else place_of(self.ts)

    def aimed(self, every: timedelta | None, course: Course | None) -> SyncHold:
        """At the next point, unless it is aimed at that already. `every`, `course` None: there are no points now."""
        ts = None if every is None or course is None else _next(every, course, self.passed)
        return self if ts == self.ts else SyncHold(passed=self.passed, ts=ts)

    def after(self, made: ClusterTime | None) -> SyncHold:
        """Past a point that an owner has made."""
        later = made is not None and (self.passed is None or made > self.passed)
        return replace(self, passed=made) if later else self

    def over(self) -> SyncHold:
        return SyncHold(passed=self.ts)

    def held(self, now: float) -> float:
        return 0.0 if self.since is None else now - self.since

    def look(
        self, published: Position, standing: Callable[[Position], TablesThere], now: float
    ) -> tuple[SyncHold, MarkTarget | MissPoint | None]:
        """`standing` is only asked while the barrier stands at the place."""
        place = self.place
        if self.ts is None or place is None or published != place:
            return self, None
        hold = self if self.since is not None else replace(self, since=now)
        assert hold.since is not None
        held = now - hold.since
        if held >= HELD_AT_MOST:
            missing = "the target did not answer in time" if hold.mark is not None else "its tables did not arrive"
            return hold, MissPoint(self.ts, missing)
        if hold.mark is not None:
            return hold, None
        found = standing(place)
        arrived = found.elsewhere is not None and found.elsewhere <= found.aside.keys() and not _awaited(found)
        if not arrived and held < ARRIVES_WITHIN:
            return hold, None
        excepted = _excepted(found)
        if excepted is None:
            return hold, MissPoint(self.ts, "too many of its tables are elsewhere")
        mark = MarkTarget(self.ts, excepted)
        return replace(hold, mark=mark), mark


def place_of(ts: ClusterTime) -> Position:
    """Just after everything at that time, and before everything later."""
    return Position(ts.next())


def names_at(place: Position, tip: SchemaVersions, target_of: Callable[[TableName], TableName]) -> NameOf:
    """`tip`: with every DDL seen, those past the place, too: a table that one of them ends is still there."""

    def names(table: TableId) -> tuple[TableName, TableName] | None:
        schema = tip.at(table, place)
        return None if schema is None else (schema.name, target_of(schema.name))

    return names


def _next(every: timedelta, course: Course, passed: ClusterTime | None) -> ClusterTime | None:
    """The first multiple of `every` that the barrier has not passed. None, if it is too old, or the tables are too far behind."""
    step = int(every.total_seconds())
    seconds = -(-course.published.ts.seconds // step) * step
    if course.published > place_of(ClusterTime(seconds, 0)):
        seconds += step
    if passed is not None and seconds <= passed.seconds:
        seconds = (passed.seconds // step + 1) * step
    ts = ClusterTime(seconds, 0)
    late = min(max(every, _LATE), _NOT_OLDER).total_seconds()
    if course.settled_ts is None or ts < course.settled_ts or course.newest.ts.seconds - seconds > late:
        return None
    return None if course.published.ts.seconds - course.furthest.ts.seconds > late else ts


def _awaited(found: TablesThere) -> bool:
    """Whether a DDL is likely to be done soon."""
    return any(record.refused is None and not record.scope.tables & found.aside.keys() for record in found.open_ddls)


def _excepted(found: TablesThere) -> tuple[ExceptedTable, ...] | None:
    """None: they are too many, or cannot be named."""
    if found.elsewhere is None or any(record.scope.databases for record in found.open_ddls):
        return None
    reasons = {**dict.fromkeys(found.elsewhere, "it has not come to the point"), **found.aside}
    excepted = [*_of_tables(reasons, found.name_of), *map(_of_ddl, found.open_ddls)]
    once = {(table.source, table.target): table for table in reversed(excepted)}
    return tuple(reversed(once.values())) if len(once) <= MOST_EXCEPTED else None


def _of_tables(reasons: Mapping[TableId, str], name_of: NameOf) -> Iterator[ExceptedTable]:
    for table, why in sorted(reasons.items()):
        if (names := name_of(table)) is not None:
            yield ExceptedTable(source=(names[0],), target=(names[1],), why=why)


def _of_ddl(record: DdlRecord) -> ExceptedTable:
    """A table that is created, dropped or renamed by then at one side alone."""
    event = record.event
    names = [name for name in (event.table, event.renamed_to) if name is not None]
    return ExceptedTable(
        source=tuple(dict.fromkeys(names)),
        target=tuple(sorted(record.scope.names)),
        why=f"a {event.type} of it is open",
    )


def excepted_too(
    excepted: Iterable[ExceptedTable], tables: Mapping[TableId, str], name_of: NameOf
) -> tuple[ExceptedTable, ...]:
    """With tables that only the target knew to be different."""
    known = list(excepted)
    named = {name for table in known for name in table.target}
    return (*known, *(table for table in _of_tables(tables, name_of) if not named.issuperset(table.target)))
