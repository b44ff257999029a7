"""`plan`: an ordered list of row changes as few bulk commands that keep the order which counts. Pure.

Changes of different keys do not depend on each other (but in an `ordered` table), so they are sorted into commands by kind. A key's
changes keep their order: within a level come inserts, then updates and replaces, then deletes, and a change that may not
stand there goes to the next level.

    insert 1, update 1, delete 2, insert 2, insert 3      level 0: insert [1, 3]  update [1]  delete [2]
                                                          level 1: insert [2]

Commands too small to be worth a round trip of their own share one across tables, where the server has `bulkWrite`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from changefeed.documents.row_key import row_key
from changefeed.event import RowType
from changefeed.table import TableName
from sink.mongodb.rows.exact_insert import holds_zero_time
from sink.row import RowChange, TargetTable

_PHASES = {RowType.INSERT: 0, RowType.UPDATE: 1, RowType.REPLACE: 1, RowType.DELETE: 2}
_STATEMENT_BYTES = 128
"""What a statement adds to the documents in it, generously."""
_SMALL = 64
_CONTENT = [RowChange._fields.index(field) for field in ("key", "document", "update")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`joined`: whether commands of several tables and kinds may be one. Such a command is one document, so its bytes are few.

    The driver refuses a command of more than the largest document, whatever the server's messages may hold.
    """

    joined: bool
    changes: int = 100_000
    bytes: int = 16 << 20
    joined_changes: int = 1_000
    joined_bytes: int = 8 << 20


@dataclass(frozen=True, slots=True)
class Batch:
    """One command. Unless `joined`, its changes are of one table and phase."""

    changes: Sequence[RowChange]
    ordered: bool
    joined: bool = False
    command: tuple[str, dict[str, Any]] | None = None
    """The database and the command, where it was made beforehand."""

    def ready(self, command: tuple[str, dict[str, Any]]) -> Batch:
        return replace(self, command=command)


def phase(change: RowChange) -> int:
    """0: by an insert command, 1: by an update, 2: by a delete."""
    number = _PHASES[change.type]
    return 1 if number == 0 and holds_zero_time(change.document) else number


def upserted(changes: Sequence[RowChange]) -> Sequence[RowChange]:
    """A replay of an ordered table would meet its inserts one by one as duplicates; an upsert says the same at once."""
    if not any(change.table.ordered for change in changes):
        return changes
    return [
        change._replace(type=RowType.REPLACE) if change.table.ordered and change.type is RowType.INSERT else change
        for change in changes
    ]


def plan(changes: Sequence[RowChange], limits: Limits) -> list[Batch]:
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
        if any(row.table.ordered for row in rows):
            batches += _chain(rows, limits)
        else:
            _levels(rows, levels)
    for level in levels:
        batches += _joined(level) if limits.joined else level
    return [part for batch in batches for part in _cut(batch, limits)]


def _chain(rows: list[RowChange], limits: Limits) -> list[Batch]:
    """Everything one after the other."""
    runs = [Batch(list(run), ordered=True) for _, run in groupby(rows, phase)]
    if len(runs) > 1 and limits.joined:
        return [Batch(rows, ordered=True, joined=True)]
    return runs


def _levels(rows: list[RowChange], levels: list[list[Batch]]) -> None:
    """Inserts alone are not looked at: no source inserts a document twice without deleting it in between."""
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


def _level(levels: list[list[Batch]], number: int) -> list[Batch]:
    while len(levels) <= number:
        levels.append([])
    return levels[number]


def _joined(level: list[Batch]) -> list[Batch]:
    """One command for the tables of a level that have few changes in it; phases stay in order, for a key that comes twice."""
    sizes: Counter[TableName] = Counter()
    for batch in level:
        sizes[batch.changes[0].table.name] += len(batch.changes)
    small = [batch for batch in level if sizes[batch.changes[0].table.name] <= _SMALL]
    if len(small) < 2:
        return level
    small.sort(key=lambda batch: phase(batch.changes[0]))
    changes = [change for batch in small for change in batch.changes]
    keys = {(change.table.name, row_key(change.key)) for change in changes}
    large = [batch for batch in level if sizes[batch.changes[0].table.name] > _SMALL]
    return [*large, Batch(changes, ordered=len(keys) < len(changes), joined=True)]


def _cut(batch: Batch, limits: Limits) -> Iterator[Batch]:
    """Parts that a message can carry. One change too large to share a joined command goes in one of its own kind."""
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
    """What their statements need at most. Nearly all batches fit, and there are many rows: so it is summed without a step for each."""
    keys, documents, updates = (sum(map(len, filter(None, map(itemgetter(field), changes)))) for field in _CONTENT)
    return 2 * keys + documents + 2 * updates + len(changes) * _STATEMENT_BYTES


def _part(changes: list[RowChange], batch: Batch, used: int, room: int) -> Batch:
    alone = len(changes) == 1 and used > room
    return Batch(changes, batch.ordered, batch.joined and not alone)
