"""Where the target has a row: its whole key, in a table that the target shards, and where a change of it goes. Pure.

The whole key of a row is its `_id`, and the fields of the target's shard key:

    shard key {customer: 1, "at.day": 1}

    document {_id: 7, customer: 3, at: {day: 2}}     {_id: 7, customer: 3, "at.day": 2}
    document {_id: 7, customer: 3}                   {_id: 7, customer: 3, "at.day": null}: a router finds it so
    key of an event {customer: 3, _id: 7}            None: the day may be missing, or the source's shard key does not have it

A filter with the whole key goes to one shard, with a version that the shard checks. One with the `_id` alone goes to all shards, without one, and
misses a document whose chunk moves meanwhile. So each change gets the whole key of its row (`place`):

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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import bson

from changefeed.bson_bytes import ARRAY, DOCUMENT, NULL, array, document_of, element, elements
from changefeed.documents.document import meet, raw_document
from changefeed.documents.row_key import id_alone, only_id, row_key
from changefeed.event import RowType
from sink.dependence import changed_names
from sink.row import RowChange, TargetTable

_ID = "_id"


RowQuery: TypeAlias = Mapping[str, Any]


def spread(table: TargetTable) -> bool:
    """Whether the target shards the table by more than its `_id`."""
    return bool(table.shard_key)


def found_by_key(change: RowChange) -> bool:
    return bool(change.table.shard_key) or only_id(change.key)


def own_filter(change: RowChange, where: Mapping[str, Any] | None = None) -> RowQuery:
    """The filter for the one document of the change. Only where the target shards the table it is more than the `_id`. The key keeps its bytes."""
    key = change.key if found_by_key(change) else id_alone(change.key)
    return raw_document(_with(key, where) if where else key)


def filter_of_ids(keys: Iterable[bytes]) -> RowQuery:
    """The filter for all documents of these keys."""
    ids = [(key[4], key[9:-1]) for key in map(id_alone, keys)]
    among = document_of([element(ARRAY, b"$in", array(ids))])
    return raw_document(document_of([element(DOCUMENT, b"_id", among)]))


def _with(key: bytes, fields: Mapping[str, Any]) -> bytes:
    return document_of([key[4:-1], bson.encode(fields)[4:-1]])


def key_of_document(document: bytes, paths: Sequence[str]) -> bytes:
    return document_of([_at(document, path) for path in (_ID, *paths)])


def key_of_event(key: bytes, paths: Sequence[str]) -> bytes | None:
    """From the `documentKey`. None if it does not have all fields; it does not tell a missing one from one of which the source knows nothing."""
    found = {name: element(kind, name, key[at:end]) for name, kind, at, end in elements(key)}
    wanted = [path.encode() for path in (_ID, *paths)]
    return document_of([found[path] for path in wanted]) if found.keys() >= {*wanted} else None


def unplaced_key(key: bytes, paths: Sequence[str]) -> bytes:
    """Of a row that the target does not have."""
    return key_of_document(id_alone(key), paths)


def touches(update: bytes | None, paths: Sequence[str]) -> bool:
    """Whether the update may change the shard key. A name with dots inside a field counts as a path, too."""
    names = changed_names(update) if update else ()
    return any(meet(name, path) for name in names for path in paths)


def _at(document: bytes, path: str) -> bytes:
    """As an element with the path for a name. A missing field is found as null. No part of a shard key is an array."""
    missing = NULL, 0, 0
    kind, at, end = DOCUMENT, 0, len(document)
    for part in path.encode().split(b"."):
        fields = elements(document, at) if kind == DOCUMENT else ()
        kind, at, end = next((value for name, *value in fields if name == part), missing)
    return element(kind, path.encode(), document[at:end])


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


def places_command(changes: Sequence[RowChange]) -> tuple[str, dict[str, Any]]:
    """Finds the whole keys of the changes' documents, wherever a router has them."""
    table, wanted = changes[0].table, filter_of_ids(change.key for change in changes)
    fields = dict.fromkeys(("_id", *table.shard_key), 1)
    find = {"find": table.name.coll, "filter": wanted, "projection": fields, "singleBatch": True}
    return table.name.db, {**find, "batchSize": 2 * len(changes) + 1}
