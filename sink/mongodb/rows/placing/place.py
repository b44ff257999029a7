"""`place`: where a change goes in a table that the target shards. Pure.

    change                                    goes to
    insert                                    where its document says
    replace, also an insert of a replay       there; if the target has the row elsewhere, it moves
    update of a field of the shard key        the row moves
    other update, delete                      where the event's key says; without the whole key, where the target has the row

A row that moves is removed by its old whole key and inserted under its new one, in one transaction: a router takes no other change of a shard key.

**Why the target has one document of each `_id`, however often changes are replayed.** A worked example. The source moved row 7 from key a to c:

    5  insert a                              c has the row, as the target is ahead: the row moves to a
    6  update at a: n = 1                    at a
    7  update at a: key = b                  moves to b
    8  delete at b, insert at c elsewhere    removed at b, inserted at c

A replay that begins at 6 finds the row at c: 6 matches nothing, and 7 moves the row from c to b. Whatever a replayed update does not match, the
row has already: changes before the row's first move have one key, so either all of them match or none. From its first move or whole document on,
the row is where the changes say. If the replay has no move, the row has not moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from changefeed.documents.row_key import row_key
from changefeed.event import RowType
from sink.mongodb.rows.placing.whole_key import key_of_document, key_of_event, touches, unplaced_key
from sink.row import RowChange


class Move(NamedTuple):
    """The row leaves the place where the target has it, or its place is not known before it is written."""

    change: RowChange


Placed: TypeAlias = Sequence[RowChange] | Move
"""Changes with whole keys."""


def as_written(change: RowChange, *, replay: bool) -> RowChange:
    """In a replay the row of an insert may be anywhere already."""
    return change._replace(type=RowType.REPLACE) if replay and change.type is RowType.INSERT else change


def is_looked_for(change: RowChange) -> bool:
    """Whether the change cannot be placed before the target has said where it has the row."""
    match change.type:
        case RowType.INSERT:
            return False
        case RowType.REPLACE:
            return True
        case RowType.UPDATE if touches(change.update, change.table.shard_key):
            return True
        case _:
            return key_of_event(change.key, change.table.shard_key) is None


def place(change: RowChange, found: Sequence[bytes]) -> Placed:
    """`found`: the whole keys under which the target has the row, if it was looked for."""
    paths = change.table.shard_key
    match change.type:
        case RowType.INSERT:
            return [change._replace(key=key_of_document(change.document or b"", paths))]
        case RowType.REPLACE:
            own = change._replace(key=key_of_document(change.document or b"", paths))
            return Move(own) if any(key != own.key for key in found) else [own]
        case RowType.UPDATE if touches(change.update, paths):
            return Move(change) if found else [change._replace(key=unplaced_key(change.key, paths))]
    if (key := key_of_event(change.key, paths)) is not None:
        return [change._replace(key=key)]
    if not found and change.type is RowType.UPDATE:
        return [change._replace(key=unplaced_key(change.key, paths))]
    return [change._replace(key=key) for key in found]


def of_different_rows(changes: Iterable[RowChange]) -> Iterator[list[RowChange]]:
    """Stretches in which no row occurs twice: what was found for the row before its first change says nothing about its second one."""
    part: list[RowChange] = []
    rows: set[bytes] = set()
    for change in changes:
        row = row_key(change.key)
        if row in rows:
            yield part
            part, rows = [], set()
        part.append(change)
        rows.add(row)
    if part:
        yield part
