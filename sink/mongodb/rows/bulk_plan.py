"""`plan`: turns an ordered list of row changes into few bulk commands that keep the necessary order. Pure.

Changes of different keys do not depend on each other (except in an `ordered` table), so they are sorted into commands by kind. A key's
changes keep their order: a level has inserts first, then updates and replaces, then deletes. A change that would break
this order goes to the next level.

    insert 1, update 1, delete 2, insert 2, insert 3      level 0: insert [1, 3]  update [1]  delete [2]
                                                          level 1: insert [2]

In a table whose rows depend on each other by their values (`sink/dependence.py`), a level has deletes first, then updates and replaces in the
source's order, then inserts. What may take a value never comes before an earlier change that may free one, so whenever a row gets a value at the
target, the row that had it before at the source has lost it there, too.

    insert 1, delete 2, insert 3, update 1, insert 4      level 0: delete [2]  insert [1, 3]
      (the update is of a unique key)                     level 1: update [1]  insert [4]

A replay may meet rows that are ahead, so there the source's order decides, as it does where rows depend on each other in other ways.

If the server has `bulkWrite`, small commands of several tables share one command, to save round trips.

**How many changes a command has** (`CommandSizes`). The server inserts the documents of one command in groups of up to 500, each as one storage transaction. Until the group is committed, no
majority can confirm any later write, of whatever table (the oplog has a hole). A table whose inserts are slow, because of its indexes or
the size of its documents, would so hold up all others. So its commands are short: beside inserts that take 1.4 ms each, an acknowledgement
by the majority took 21 ms with 14 documents in a command, and 1.1 ms with one. A worked example:

    first command of a table      100 documents in 142 ms      2 take 4 ms at most
    next                          2 in 4.8 ms                  2
    of another table              100 in 2 ms                  400, and from then on as many as are to be written

A command for several tables, which 8.0 has, hides which of them is slow. When one takes long, each of its tables gets commands of its own, until one of
these is short.

Each update and each delete is a storage transaction of its own, so they may be many. Only the commands of a table that shares the sink with others
are short, whatever they do: beside ten updates of 6 ms each, all small writes were late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from changefeed.documents.row_key import row_key
from changefeed.event import RowType
from changefeed.table import TableId, TableName
from sink.dependence import Dependence
from sink.mongodb.rows.statements.exact_insert import holds_zero_time
from sink.row import RowChange, TargetTable

_DELETES_FIRST = (2, 1, 0)
"""By phase."""
_PHASES = {RowType.INSERT: 0, RowType.UPDATE: 1, RowType.REPLACE: 1, RowType.DELETE: 2}
_STATEMENT_BYTES = 128
"""An upper bound for the bytes that a statement adds to its documents."""
_SMALL = 64
_BULK_WRITE_WIRE_VERSION = 25
_CONTENT = [RowChange._fields.index(field) for field in ("key", "document", "update")]

FIRST = 100
_UNLIMITED = 500
_SLOW_SECONDS = 0.0001
"""A table is slow if each change takes longer than this."""
_SECONDS = 0.004
_OVERHEAD_SECONDS = 0.002
"""What a command takes besides its changes. A command of a few changes that takes no longer says nothing about the table."""
_GROWTH = 4
_LONG_SECONDS = 0.1
"""One of its tables is slow, or all of the target for a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`joined`: whether changes of several tables and kinds may share a command. Such a command is one document, so its limits are lower.

    The driver refuses a command larger than the largest document, although the server's messages may be larger.
    """

    joined: bool
    router: bool = False
    defers: bool = False
    """Whether the commands of several batches may wait for the majority together: a router's replies do not tell of which primary they are."""
    changes: int = 100_000
    bytes: int = 16 << 20
    joined_changes: int = 1_000
    joined_bytes: int = 8 << 20

    @classmethod
    def of(cls, hello: Mapping[str, Any]) -> Limits:
        router = hello.get("msg") == "isdbgrid"
        return cls(
            joined=hello["maxWireVersion"] >= _BULK_WRITE_WIRE_VERSION and not router,
            router=router,
            defers="setName" in hello,
            changes=hello["maxWriteBatchSize"],
            bytes=hello["maxBsonObjectSize"],
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """One command. Unless `joined`, its changes are of one table and phase."""

    changes: Sequence[RowChange]
    ordered: bool
    joined: bool = False
    command: tuple[str, dict[str, Any]] | None = None
    """The database and the command, if it was built in advance."""
    dependent: bool = False
    """Its rows may depend on other rows of its table by more than their `_id`."""
    placed: bool = False
    """Its changes have the whole keys that a router needs."""
    first: bool = False
    """Its updates were not applied before, so that a new field is not there, and each is the last of its row until they are."""


def phase(change: RowChange) -> int:
    """0 for an insert command, 1 for an update, 2 for a delete."""
    number = _PHASES[change.type]
    return 1 if number == 0 and holds_zero_time(change.document) else number


def upserted(changes: Sequence[RowChange]) -> Sequence[RowChange]:
    """In a replay of an ordered table each insert would fail alone as a duplicate; an upsert has the same effect without failing."""
    if not any(change.table.ordered for change in changes):
        return changes
    return [
        change._replace(type=RowType.REPLACE) if change.table.ordered and change.type is RowType.INSERT else change
        for change in changes
    ]


def plan(
    changes: Sequence[RowChange],
    limits: Limits,
    may_share: Callable[[TableId], bool] = lambda _: True,
    *,
    replay: bool = False,
) -> list[Batch]:
    """`may_share`: whether changes of a table may share a command with those of others, if the limits say so."""
    by_table: dict[TableName, list[RowChange]] = {}
    table: TargetTable | None = None
    rows: list[RowChange] = []
    for change in changes:
        if change.table is not table:
            table = change.table
            rows = by_table.setdefault(table.name, [])
        rows.append(change)
    levels: list[list[Batch]] = []
    batches: list[Batch] = []
    for rows in by_table.values():
        dependences = _dependences(rows)
        if not dependences:
            _levels(rows, levels)
        elif replay or not all(dependences) or _keeps_zero_times(rows, dependences):
            batches += _chain(rows, limits)
        else:
            _dependent_levels(rows, list(filter(None, dependences)), levels)
    for level in levels:
        batches += _joined(level, may_share) if limits.joined else level
    return [part for batch in batches for part in _cut(batch, limits)]


def _dependences(rows: Iterable[RowChange]) -> set[Dependence | None]:
    """Those of the tables of one name. Their rows may take each other's values."""
    return {table.dependence for table in {id(row.table): row.table for row in rows}.values() if table.ordered}


def _keeps_zero_times(rows: Iterable[RowChange], dependences: Iterable[Dependence | None]) -> bool:
    """Whether a capped collection would have such an insert, which is an update, before the others."""
    capped = any(dependence is not None and dependence.capped for dependence in dependences)
    return capped and any(row.type is RowType.INSERT and phase(row) for row in rows)


def new_fields_apart(batch: Batch, adds: Callable[[RowChange], bool]) -> Iterator[Batch]:
    """The updates that add fields follow the others in a command of their own: the source may have moved such a field instead, and then they are
    sent again. No later change of the row may have been applied by then, so only a row's last change is among them, and none that others depend on.
    """
    updates = [change for change in batch.changes if change.update is not None]
    adding = [change for change in updates if adds(change) and _may_follow(batch, change)]
    if adding:
        last = {(change.table.name, row_key(change.key)): change for change in batch.changes}
        chosen = {id(change) for change in last.values()} & {id(change) for change in adding}
        adding = [change for change in adding if id(change) in chosen]
    if not adding:
        yield batch
        return
    if rest := [change for change in batch.changes if id(change) not in chosen]:
        yield replace(batch, changes=rest)
    yield replace(batch, changes=adding, ordered=False, first=True)


def _chain(rows: list[RowChange], limits: Limits) -> list[Batch]:
    """All changes one after the other."""
    runs = [Batch(list(run), ordered=True, dependent=True) for _, run in groupby(rows, phase)]
    if len(runs) > 1 and limits.joined:
        return [Batch(rows, ordered=True, joined=True, dependent=True)]
    return runs


def _levels(rows: list[RowChange], levels: list[list[Batch]]) -> None:
    """A list of inserts only needs no levels: no source inserts a document twice without a delete in between."""
    if all(row.type is RowType.INSERT and not phase(row) for row in rows):
        _level(levels, 0).append(Batch(rows, ordered=False))
        return
    groups: dict[tuple[int, int], list[RowChange]] = {}
    repeated: set[tuple[int, int]] = set()
    last: dict[bytes, tuple[int, int]] = {}
    for row in rows:
        key, now = row_key(row.key), phase(row)
        level, before = last.get(key, (0, -1))
        place = (level if now >= before else level + 1, now)
        if place == (level, before):
            repeated.add(place)
        last[key] = place
        groups.setdefault(place, []).append(row)
    for place in sorted(groups):
        _level(levels, place[0]).append(Batch(groups[place], ordered=place in repeated))


def _dependent_levels(rows: list[RowChange], dependences: list[Dependence], levels: list[list[Batch]]) -> None:
    groups: dict[tuple[int, int], list[RowChange]] = {}
    last: dict[bytes, tuple[int, int]] = {}
    freed = 0
    """The level of the latest change that may free a value."""
    for row in rows:
        key, now = row_key(row.key), _DELETES_FIRST[phase(row)]
        level = 0
        if (place := last.get(key)) is not None:
            level, before = place
            if now < before:
                level += 1
        if row.update is None or any(each.touched_by(row.update) for each in dependences):
            if now and level < freed:
                level = freed
            if level > freed and row.type is not RowType.INSERT:
                freed = level
        last[key] = place = level, now
        group = groups.get(place)
        if group is None:
            group = groups[place] = []
        group.append(row)
    capped = any(each.capped for each in dependences)
    for level, stage in sorted(groups):
        ordered = len(groups[level, stage]) > 1 and (stage == 1 or (stage == 2 and capped))
        _level(levels, level).append(Batch(groups[level, stage], ordered=ordered, dependent=True))


def _may_follow(batch: Batch, change: RowChange) -> bool:
    """Whether no row of the batch depends on the change, nor it on any."""
    dependence = change.table.dependence
    return not batch.dependent or (dependence is not None and not dependence.touched_by(change.update or b""))


def _level(levels: list[list[Batch]], number: int) -> list[Batch]:
    while len(levels) <= number:
        levels.append([])
    return levels[number]


def _joined(level: list[Batch], may_share: Callable[[TableId], bool]) -> list[Batch]:
    """Joins the tables with few changes in a level into one command; its phases stay in order, because a key may occur twice."""
    sizes: Counter[TableName] = Counter()
    for batch in level:
        sizes[batch.changes[0].table.name] += len(batch.changes)
    small: list[Batch] = []
    rest: list[Batch] = []
    for batch in level:
        table = batch.changes[0].table
        (small if sizes[table.name] <= _SMALL and may_share(table.id) else rest).append(batch)
    if len(small) < 2:
        return level
    small.sort(key=_stage)
    changes = [change for batch in small for change in batch.changes]
    keys = {(change.table.name, row_key(change.key)) for change in changes}
    dependent = any(batch.dependent for batch in small)
    return [*rest, Batch(changes, ordered=len(keys) < len(changes) or dependent, joined=True, dependent=dependent)]


def _stage(batch: Batch) -> int:
    number = phase(batch.changes[0])
    return _DELETES_FIRST[number] if batch.dependent else number


def _cut(batch: Batch, limits: Limits) -> Iterator[Batch]:
    """Parts that fit into a message. A change that is too large for a joined command gets a command of its own kind."""
    most, room = (limits.joined_changes, limits.joined_bytes) if batch.joined else (limits.changes, limits.bytes)
    if len(batch.changes) <= most and _bytes(batch.changes) <= room:
        yield batch
        return
    part: list[RowChange] = []
    used = 0
    for change in batch.changes:
        size = _bytes([change])
        if part and (len(part) == most or used + size > room):
            yield _part(part, batch, used, room)
            part, used = [], 0
        part.append(change)
        used += size
    yield _part(part, batch, used, room)


def _bytes(changes: Sequence[RowChange]) -> int:
    """An upper bound for the size of the statements. It is computed without a Python loop, because batches have many rows and nearly all fit."""
    keys, documents, updates = (sum(map(len, filter(None, map(itemgetter(field), changes)))) for field in _CONTENT)
    return 2 * keys + documents + 2 * updates + len(changes) * _STATEMENT_BYTES


def _part(changes: list[RowChange], batch: Batch, used: int, room: int) -> Batch:
    alone = len(changes) == 1 and used > room
    return replace(batch, changes=changes, joined=batch.joined and not alone)


class CommandSizes:
    """Remembers tables across runs. What it does not know costs a longer command, nothing else."""

    def __init__(self) -> None:
        self._most: dict[tuple[TableId, int], int] = {}
        """Absent: not known yet. `_UNLIMITED` or more: no limit."""
        self._suspected: frozenset[TableId] = frozenset()
        """They may have made a command of several tables long."""

    def may_share(self, table: TableId) -> bool:
        """Whether a command may contain changes of other tables besides."""
        return table not in self._suspected

    def took_together(self, tables: Iterable[TableId], seconds: float) -> None:
        if seconds > _LONG_SECONDS:
            self._suspected |= frozenset(tables)

    def most(self, table: TableId, kind: int) -> int | None:
        """None: no limit."""
        most = self._most.get((table, kind), FIRST)
        return most if most < _UNLIMITED else None

    def took(self, table: TableId, kind: int, changes: int, seconds: float) -> None:
        if seconds <= _LONG_SECONDS:
            self._suspected -= {table}
        each = (seconds - _OVERHEAD_SECONDS) / changes
        fits = int(_SECONDS / each) if each > _SLOW_SECONDS else _UNLIMITED
        known = self._most.get((table, kind), FIRST)
        self._most[table, kind] = max(1, fits if fits < known else min(fits, max(known, _GROWTH * changes)))
