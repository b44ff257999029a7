"""`wait`: which tables and DDLs the changefeed's checkpoint does not wait for. Pure.

One table's trouble stays its own. A table is in trouble when it is stopped (the target refused a row of it, its history is lost, a user asked
for it) and when the target refused a DDL that touches it: the barrier holds it there until a user acts. Then it is a *straggler*: a record in etcd
says so, written before the checkpoint passes the table, and deleted when the table has caught up with the checkpoint.

A DDL is *blocked* if it was refused, if a straggler in its scope is behind it, or if its scope meets that of a blocked one. A table that has
reached a blocked DDL stands there, and becomes a straggler. An example, with b stopped at 5:

    createIndexes b @7        blocked: b is not there
    rename c to d @8          not blocked
    rename b to e @9          blocked
    create b @10              blocked: the name is not free before the rename. Its table has no node yet
    rename d to b @11         blocked. d, which was c, goes on to 11, stands there, and becomes a straggler

**A stopped table that ends at the source is not waited for.** When an open DDL ends it (a drop, a rename onto it or out of the filter), rows of it
that are missing downstream do not matter any more. So that DDL, and the earlier ones of the table, run as soon as nothing of the table
is being written, which its node has to say. What lay between counts as skipped, and the table cannot be resumed any more. DDLs
that cannot matter afterwards are skipped: refused ones, and those that nothing has begun of.

**A table whose name is taken** (`DdlRecord.taken`) is stopped where the DDL names it, and is not resumed: a changed filter or changed routes, or a
resume of the changefeed after the name is free, have it copied anew (`filter_change`). If it ends at the source instead, a create that was
taken is skipped, and a rename that was taken becomes a drop of what the table was before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from changefeed.errors import HistoryLost, NameTaken
from changefeed.event import DdlType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Scope
from changefeed.records.status import Straggler
from changefeed.table import TableId, TableName

SKIPPABLE = frozenset({DdlType.CREATE_INDEXES, DdlType.DROP_INDEXES, DdlType.MODIFY})
"""Without these the target's table still takes the source's rows, under the name that it has."""
_WITHOUT_CONSEQUENCE = SKIPPABLE | {DdlType.CREATE, DdlType.UNKNOWN}
"""Of a table that ends. Without the create, none of its rows are written. What is unknown is never done."""
_ENDS = (DdlType.DROP, DdlType.DROP_DATABASE)

CheckpointOf = Callable[[TableId], Position | None]
"""A table's checkpoint, as far as the owner knows it. None while no node has the table."""


@dataclass(frozen=True, slots=True)
class StoredStraggler:
    """`rev`: the revision of the record in etcd."""

    record: Straggler
    rev: int

    @property
    def lost(self) -> bool:
        error = self.record.error
        return self.record.stopped and error is not None and error.code == HistoryLost.code


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    blocked: frozenset[Position] = frozenset()
    standing: frozenset[TableId] = frozenset()
    """The stopped tables, and those that have reached a blocked DDL."""
    ending: Mapping[TableId, Position] = field(default_factory=dict)
    """The stopped tables that an open DDL ends, with its position."""
    passed: frozenset[TableId] = frozenset()
    """The ending tables of which nothing is being written."""
    needless: frozenset[Position] = frozenset()
    """DDLs that cannot matter any more."""

    def passes(self, record: DdlRecord, table: TableId) -> bool:
        """Whether the DDL runs without waiting for the table's rows."""
        return table in self.passed and record.position <= self.ending[table]


NOTHING = Waiting()


def wait(
    stragglers: Mapping[TableId, StoredStraggler],
    obeyed: Callable[[TableId, int], bool],
    records: Iterable[DdlRecord],
    resolved: Position,
    checkpoint_of: CheckpointOf,
) -> Waiting:
    """`obeyed`: whether nothing is being written of a table, under its record of that revision."""
    open_records = sorted(
        (record for record in records if record.open and record.position < resolved),
        key=lambda record: record.position.order,
    )
    if not stragglers and all(record.refused is None for record in open_records):
        return NOTHING
    stopped = {table for table, stored in stragglers.items() if stored.record.stopped}
    ends = {table: record.position for record in reversed(open_records) for table in record.scope.ended}
    ending = {table: ends[table] for table in stopped & ends.keys()}
    passed = frozenset(table for table in ending if obeyed(table, stragglers[table].rev))
    blocked, held = _blocked(open_records, stragglers.keys() - ending.keys(), checkpoint_of)
    return Waiting(
        blocked=frozenset(blocked),
        standing=frozenset(held | stopped),
        ending=ending,
        passed=passed,
        needless=frozenset(_needless(open_records, ends, passed)),
    )


def _blocked(
    open_records: Iterable[DdlRecord], awaited: AbstractSet[TableId], checkpoint_of: CheckpointOf
) -> tuple[set[Position], set[TableId]]:
    """The blocked DDLs, and the tables that have reached one."""
    blocked, reached = set[Position](), set[TableId]()
    held, before = set[TableId](), Touched()
    for record in open_records:
        tables = record.scope.tables
        behind = any(not _has_reached(checkpoint_of(table), record) for table in tables & awaited)
        if record.refused is not None or behind or before.meets(record.scope):
            blocked.add(record.position)
            before.add(record.scope)
            if not record.background:
                reached |= {table for table in tables - held if checkpoint_of(table) == record.position}
        if not record.background:
            held |= tables
    return blocked, reached


def _has_reached(checkpoint: Position | None, record: DdlRecord) -> bool:
    return checkpoint is not None and checkpoint >= record.position


def _needless(
    open_records: Sequence[DdlRecord], ends: Mapping[TableId, Position], passed: AbstractSet[TableId]
) -> Iterable[Position]:
    """The DDLs that need not run, since each of their tables ends at a later one that is open: refused ones without consequence, and pending ones
    of which nothing is written. A pending one only if each earlier one that it overlaps with is needless, too: changes of a table are released in
    the stream's order.
    """
    views = {
        view: record.position for record in open_records if record.event.type in _ENDS for view in record.scope.apart
    }
    ends, before = {**views, **ends}, Touched()
    for record in open_records:
        known = known_tables(record)
        ended = all(table in ends and ends[table] > record.position for table in known)
        without_consequence = record.event.type in _WITHOUT_CONSEQUENCE or (name_is_taken(record) and brings_in(record))
        in_vain = record.state is DdlState.PENDING and record.event.type in SKIPPABLE and known <= passed
        refused = record.refused is not None and without_consequence
        if known and ended and (refused or (in_vain and not before.meets(record.scope))):
            yield record.position
        else:
            before.add(record.scope)


def brings_in(record: DdlRecord) -> bool:
    """Whether the table is not replicated before the DDL."""
    return record.event.id not in record.scope.tables


def nameless(records: Iterable[DdlRecord]) -> dict[TableId, DdlRecord]:
    """The tables that have no name downstream, with the DDLs since which they have none."""
    return {table: record for record in records if record.open and record.taken for table in named_tables(record)}


def name_is_taken(record: DdlRecord) -> bool:
    return record.taken and record.refused is not None and record.refused.code == NameTaken.code


def named_tables(record: DdlRecord) -> AbstractSet[TableId]:
    """The table that a create or a rename names. A view's is known by its scope only."""
    return {record.event.id} if record.event.id is not None else record.scope.apart


def known_tables(record: DdlRecord) -> AbstractSet[TableId]:
    """The tables by which a user knows the DDL: those that it touches, and the one that it creates."""
    own = {record.event.id} if record.event.id is not None else set()
    return record.scope.tables | record.scope.apart | own


def not_awaited(
    records: Iterable[DdlRecord], counts: Callable[[TableId], bool], waiting: Waiting, checkpoint: Position
) -> frozenset[Position]:
    """The open DDLs that the changefeed's checkpoint does not wait for: it has passed them, or they are blocked and hold no table that `counts`.

    These are the tables that are there and no stragglers: a table that a blocked DDL creates will begin as a straggler.
    """
    return frozenset(
        record.position
        for record in records
        if record.open
        and (
            record.position < checkpoint
            or (record.position in waiting.blocked and (record.background or not any(map(counts, record.scope.tables))))
        )
    )


def behind(
    stragglers: Mapping[TableId, StoredStraggler], records: Iterable[DdlRecord], checkpoint: Position
) -> Mapping[TableId, Position]:
    """What is not there below the checkpoint: of stragglers, and of tables that a DDL which it has passed will bring in. They have no record yet."""
    found: dict[TableId, Position] = {}
    for record in records:
        if record.open and record.position < checkpoint and not record.background:
            for table in known_tables(record):
                found[table] = min(record.position, found.get(table, record.position))
    return found | {table: stored.record.at for table, stored in stragglers.items()}


class Touched:
    """What several DDLs touch together. It meets a scope if one of the scopes added to it does. In sets: dropping a database of 10,000 tables is 10,000 DDLs."""

    def __init__(self) -> None:
        self._tables = set[TableId]()
        self._names = set[TableName]()
        self._databases = set[str]()
        self._named = set[str]()
        """The databases of the names."""

    def add(self, scope: Scope) -> None:
        self._tables |= scope.tables | scope.apart
        self._names |= scope.names
        self._databases |= scope.databases
        self._named |= {name.db for name in scope.names}

    def meets(self, scope: Scope) -> bool:
        return not (
            self._tables.isdisjoint(scope.tables)
            and self._tables.isdisjoint(scope.apart)
            and self._names.isdisjoint(scope.names)
            and self._databases.isdisjoint(scope.databases)
            and self._databases.isdisjoint(name.db for name in scope.names)
            and self._named.isdisjoint(scope.databases)
        )
