"""`JsonRows`, `BsonRows`: row changes and copied documents as messages of the format `sluice`. Pure, and called for each change.

    insert   {"v": 1, "feed": "orders", "op": "i", "ns": "shop.orders", "id": "<table>", "pos": "..", "ts": {"t": .., "i": ..},
              "schema": "<pos of the table's version>", "key": {"_id": 7}, "after": {"_id": 7, "n": 1}}
    replace  op R, the same; copy: op r, the same with the pos of its chunk's read time
    update   op u, "update": {"set": {"n": 2}, "unset": ["a.b"], "append": ["n"], "truncate": [{"field": "x", "size": 2}], "paths": {..}} in place of "after"
    delete   op d, and nothing after the key

    "wall": milliseconds and, in a transaction, "txn": {"lsid": "<hex>", "n": 5} stand before "schema", where the source shows them
    "images": "both", "before", "after" or "missing" stands before "key", and "before" and "after" behind it, if images are asked for

A field without content is left out of "update". In JSON the documents (key, after, update) are canonical Extended JSON; the envelope
around them has plain strings and numbers. What is the same for all changes of a table is made once.

The "update" of a message is made from the change's raw `updateDescription`:

    {updatedFields: {n: 2, c: 3}, removedFields: ["a.b", "c"], truncatedArrays: [{field: "x", newSize: 2}], disambiguatedPaths: {}}
    {set: {n: 2, c: 3}, unset: ["a.b"], append: ["c"], truncate: [{field: "x", size: 2}]}

A description from the oplog has each new field under both, so that it comes to the end of its document. That form stays inside: such a field
is not unset, and `append` says where it comes. Fields without content are left out. `upsert` says that the source
may have inserted the document by this update: an operation of a large transaction does not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from json.encoder import encode_basestring
from struct import Struct
from typing import Generic, TypeAlias, TypeVar

import bson
from bson.int64 import Int64

from changefeed.bson_bytes import array, document_of, documents_of, element, elements
from changefeed.cluster_time import ClusterTime
from changefeed.errors import InvariantError, RowRejected
from changefeed.event import RowType
from changefeed.table import COPIED_AGAIN
from sink.messages.message_key import key_json, keys_json, message_key
from sink.messages.shaped_json import ShapedJson
from sink.row import RowChange, TargetTable
from sluice_client.extended_json import NoJson, to_json
from sluice_client.pos import AFTER_ALL, OF_EVENT, pos_of

VERSION = 1
COPIED = "r"
OPS: Mapping[RowType, str] = {
    RowType.INSERT: "i",
    RowType.UPDATE: "u",
    RowType.REPLACE: "R",
    RowType.DELETE: "d",
}

_KEY, _BEFORE, _AFTER, _UPDATE = b"\x03key\0", b"\x03before\0", b"\x03after\0", b"\x03update\0"
_Write: TypeAlias = Callable[[bytes], str]
_OfJsonTable: TypeAlias = tuple[Mapping[str, str], str, _Write, _Write]
"""How its messages begin, by operation; the element of its version; what writes its documents, and the fields that its updates set."""
_WALL = Struct("<6sq")
_TIMES = Struct("<4si3sq3sqs")


class BsonRows:
    """Each message is one BSON document. `keyed`: what it is keyed by, and the message; `pos` is that of the change, which the caller needs, too."""

    def __init__(self, feed: str) -> None:
        self._feed = feed
        self._of = OfTable(self._made)

    def change(self, change: RowChange) -> bytes:
        return self._changed(change, event_pos(change))

    def keyed(self, change: RowChange, pos: str) -> tuple[bytes, bytes]:
        return message_key(change.key), self._changed(change, pos)

    def _changed(self, change: RowChange, pos: str) -> bytes:
        table, type_, key, document, update, time, _, details = change
        body = b"" if update is None else _UPDATE + update_body(update)
        about = images = b""
        if details is not None:
            wall, transaction, before, after, found = details
            about = b"" if wall is None else _WALL.pack(b"\x12wall\0", wall)
            if transaction is not None:
                about += _element({"txn": {"lsid": transaction[0], "n": Int64(transaction[1])}})
            if found is not None:
                images = _element({"images": found})
                body = (b"" if before is None else _BEFORE + before) + (b"" if after is None else _AFTER + after) + body
        if document is not None:
            body += _AFTER + document
        return self._message(table, OPS[type_], pos.encode(), time, key, body, about, images)

    def copied(self, table: TargetTable, document: bytes, key: bytes, read_ts: ClusterTime) -> bytes:
        time = read_ts.to_int()
        return self._message(table, COPIED, f"{time:016X}{AFTER_ALL}".encode(), time, key, _AFTER + document)

    def _message(
        self,
        table: TargetTable,
        op: str,
        pos: bytes,
        time: int,
        key: bytes,
        body: bytes,
        about: bytes = b"",
        images: bytes = b"",
    ) -> bytes:
        heads, schema = self._of(table)
        pieces = (
            heads[op],
            b"\x02pos\0",
            (len(pos) + 1).to_bytes(4, "little"),
            pos,
            b"\0",
            _TIMES.pack(b"\x03ts\0", 27, b"\x12t\0", time >> 32, b"\x12i\0", time & 0xFFFFFFFF, b"\0"),
            about,
            schema,
            images,
            _KEY,
            key,
            body,
        )
        return b"".join(((sum(map(len, pieces)) + 5).to_bytes(4, "little"), *pieces, b"\0"))

    def _made(self, table: TargetTable) -> tuple[dict[str, bytes], bytes]:
        about = {"ns": str(table.name), "id": table.id}
        heads = {op: _element({"v": VERSION, "feed": self._feed, "op": op, **about}) for op in (*OPS.values(), COPIED)}
        return heads, _element({"schema": pos_of(table.version)})


class JsonRows:
    """Each message is one line of JSON, without the line's end. `keyed`: as above."""

    def __init__(self, feed: str) -> None:
        self._feed = feed
        self._of = OfTable(self._made)

    def change(self, change: RowChange) -> bytes:
        return self._changed(change, event_pos(change), key_json(change.key))

    def keyed(self, change: RowChange, pos: str) -> tuple[bytes, bytes]:
        key, message_key = keys_json(change.key)
        return message_key.encode(), self._changed(change, pos, key)

    def _changed(self, change: RowChange, pos: str, key: str) -> bytes:
        table, type_, _, document, update, time, _, details = change
        of = self._of
        heads, schema, json, fields_json = of.last if table is of.table else of(table)
        body = "" if document is None else f', "after": {json(document)}'
        about = images = ""
        if update is not None:
            body += f', "update": {update_json(update, fields_json)}'
        if details is not None:
            wall, transaction, before, after, found = details
            about = "" if wall is None else f', "wall": {wall}'
            if transaction is not None:
                about += f', "txn": {{"lsid": "{transaction[0]}", "n": {transaction[1]}}}'
            if found is not None:
                images = f', "images": "{found}"'
                was = "" if before is None else f', "before": {json(before)}'
                body = was + ("" if after is None else f', "after": {json(after)}') + body
        return _json_message(heads[OPS[type_]], pos, time, f"{about}{schema}{images}", key, body)

    def copied(self, table: TargetTable, document: bytes, key: bytes, read_ts: ClusterTime) -> bytes:
        heads, schema, json, _ = self._of(table)
        time, after = read_ts.to_int(), f', "after": {json(document)}'
        return _json_message(heads[COPIED], f"{time:016X}{AFTER_ALL}", time, schema, key_json(key), after)

    def _made(self, table: TargetTable) -> _OfJsonTable:
        feed, ns, id_ = map(encode_basestring, (self._feed, str(table.name), table.id))
        common = f'"ns": {ns}, "id": {id_}, "pos": "'
        heads = {op: f'{{"v": {VERSION}, "feed": {feed}, "op": "{op}", {common}' for op in (*OPS.values(), COPIED)}
        return heads, f', "schema": "{pos_of(table.version)}"', ShapedJson().text, ShapedJson().text


def _json_message(head: str, pos: str, time: int, about: str, key: str, body: str) -> bytes:
    ts = f'{{"t": {time >> 32}, "i": {time & 0xFFFFFFFF}}}'
    return f'{head}{pos}", "ts": {ts}{about}, "key": {key}{body}}}'.encode()


def without_json(row: str, table: TargetTable, error: NoJson, exact: str) -> RowRejected:
    """`exact`: the options with which a changefeed writes texts as they are."""
    return RowRejected(
        f"{row}: {error}; repair the document at the source and have the table {COPIED_AGAIN}, or create another changefeed with {exact}"
    ).about(table.id)


def _element(fields: Mapping[str, object]) -> bytes:
    return bson.encode(fields)[4:-1]


def event_pos(change: RowChange) -> str:
    return f"{change.time:016X}{OF_EVENT}{change.token.decode()}"


_MOST_TABLES = 10_000
V = TypeVar("V")


class OfTable(Generic[V]):
    """Changes of one table mostly follow each other, so what was made for the last one is at hand, without a call: `last` of `table`."""

    def __init__(self, make: Callable[[TargetTable], V]) -> None:
        self._make = make
        self._made: dict[TargetTable, V] = {}
        self.table: TargetTable | None = None
        self.last: V

    def __call__(self, table: TargetTable) -> V:
        if table is self.table:
            return self.last
        made = self._made.get(table)
        if made is None:
            if len(self._made) >= _MOST_TABLES:
                self._made.clear()
            made = self._made[table] = self._make(table)
        self.table, self.last = table, made
        return made


_INT32: Callable[[bytes, int], tuple[int]] = Struct("<i").unpack_from
_DOCUMENT, _ARRAY, _BOOLEAN = 0x03, 0x04, 0x08
_KINDS = {
    b"updatedFields": _DOCUMENT,
    b"removedFields": _ARRAY,
    b"truncatedArrays": _ARRAY,
    b"disambiguatedPaths": _DOCUMENT,
    b"upsert": _BOOLEAN,
}
_EMPTY_SIZE = 5
_EMPTY = b"\x05\0\0\0\0"
_SET, _TEXT_AT = b"\x03set\0", 4
_UPDATED = b"\x03updatedFields\0"
NOTHING_ELSE = b"\x04removedFields\0\x05\0\0\0\0\x04truncatedArrays\0\x05\0\0\0\0\0"
_SET_AT = 4 + len(_UPDATED)


def update_json(description: bytes, text: Callable[[bytes], str]) -> str:
    """`text`: writes the document of the fields that are set. Many updates do nothing else."""
    if description.endswith(NOTHING_ELSE) and description.startswith(_UPDATED, 4):
        fields = description[_SET_AT : -len(NOTHING_ELSE)]
        if len(fields) == _INT32(fields, 0)[0] > _EMPTY_SIZE:
            return f'{{"set": {text(fields)}}}'
    first, *others = parts = _update_parts(description) or [b""]
    if not first.startswith(_SET):
        return to_json(document_of(parts))
    rest = f", {to_json(document_of(others))[1:]}" if others else "}"
    return f'{{"set": {text(first[len(_SET) :])}{rest}'


def update_body(description: bytes) -> bytes:
    return document_of(_update_parts(description))


def _update_parts(description: bytes) -> list[bytes]:
    """The elements of an "update"."""
    said: dict[bytes, bytes] = {}
    for name, kind, at, end in elements(description):
        if _KINDS.get(name) != kind:
            raise InvariantError(f"an update description: expected {sorted(_KINDS)}, observed {name!r} of type {kind}")
        said[name] = description[at:end]
    updated, removed = said.get(b"updatedFields", _EMPTY), said.get(b"removedFields", _EMPTY)
    truncated, paths = said.get(b"truncatedArrays", _EMPTY), said.get(b"disambiguatedPaths", _EMPTY)
    parts = [_SET + updated] if updated != _EMPTY else []
    if removed != _EMPTY:
        parts += _removals(removed, updated)
    if truncated != _EMPTY:
        parts.append(b"\x04truncate\0" + _renamed(truncated, b"newSize", b"size"))
    if paths != _EMPTY:
        parts.append(b"\x03paths\0" + paths)
    return [*parts, b"\x08upsert\0\x01"] if said.get(b"upsert") == b"\x01" else parts


def _removals(removed: bytes, updated: bytes) -> list[bytes]:
    """What is gone, and what is set again at the end of its document."""
    names = {name for name, *_ in elements(updated)}
    unset: list[bytes] = []
    append: list[bytes] = []
    for _, _, at, end in elements(removed):
        found = append if removed[at + _TEXT_AT : end - 1] in names else unset
        found.append(b"\x02%d\0%s" % (len(found), removed[at:end]))
    kinds = (b"\x04unset\0", unset), (b"\x04append\0", append)
    return [head + document_of(texts) for head, texts in kinds if texts]


def update_description(update: bytes) -> bytes:
    """Of the "update" of a message: `update_body` the other way. What is put at the end of its document is removed first."""
    said = {name: update[at:end] for name, _, at, end in elements(update)}
    removals = said.get(b"unset", _EMPTY), said.get(b"append", _EMPTY)
    removed = array((kind, part[at:end]) for part in removals for _, kind, at, end in elements(part))
    parts = [
        _UPDATED + said.get(b"set", _EMPTY),
        b"\x04removedFields\0" + removed,
        b"\x04truncatedArrays\0" + _renamed(said.get(b"truncate", _EMPTY), b"size", b"newSize"),
    ]
    if b"paths" in said:
        parts.append(b"\x03disambiguatedPaths\0" + said[b"paths"])
    return document_of([*parts, b"\x08upsert\0\x01"] if b"upsert" in said else parts)


def _renamed(truncated: bytes, old: bytes, new: bytes) -> bytes:
    """The array with another name for the sizes in its documents."""
    return array(
        (
            _DOCUMENT,
            document_of(
                [element(kind, new if name == old else name, each[at:end]) for name, kind, at, end in elements(each)]
            ),
        )
        for each in documents_of(truncated, 0, len(truncated))
    )
