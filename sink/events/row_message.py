"""`RowEncoder`: row changes and copied documents as messages of the format `sluice`, in BSON or JSON. Pure, and called for each change.

    insert   {"v": 1, "feed": "orders", "op": "i", "ns": "shop.orders", "id": "<table>", "pos": "..", "ts": {"t": .., "i": ..},
              "schema": "<pos of the table's version>", "key": {"_id": 7}, "after": {"_id": 7, "n": 1}}
    replace  op R, the same; copy: op r, the same with the pos of its chunk's read time
    update   op u, "update": {"set": {"n": 2}, "unset": ["a.b"], "truncate": [{"field": "x", "size": 2}], "paths": {..}} in place of "after"
    delete   op d, and nothing after the key

    "wall": milliseconds and, in a transaction, "txn": {"lsid": "<hex>", "n": 5} stand before "schema", where the source shows them
    "images": "both", "before", "after" or "missing" stands before "key", and "before" and "after" behind it, if images are asked for

A field without content is left out of "update". In JSON the documents (key, after, update) are canonical Extended JSON; the envelope
around them has plain strings and numbers. What is the same for all changes of a table is made once.
"""

from __future__ import annotations

from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from struct import Struct
from typing import Protocol, TypeVar

import bson
from bson.int64 import Int64

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.message_options import MessageEncoding
from changefeed.event import RowType
from sink.events.extended_json import to_json
from sink.events.key_json import key_json
from sink.events.pos import AFTER_ALL, OF_EVENT, pos_of
from sink.events.update_body import update_body
from sink.row import RowChange, TargetTable

VERSION = 1
COPIED = "r"
OPS: Mapping[RowType, str] = {
    RowType.INSERT: "i",
    RowType.UPDATE: "u",
    RowType.REPLACE: "R",
    RowType.DELETE: "d",
}

_KEY, _BEFORE, _AFTER, _UPDATE = b"\x03key\0", b"\x03before\0", b"\x03after\0", b"\x03update\0"
_WALL = Struct("<6sq")
_TIMES = Struct("<4si3sq3sqs")
_MOST_TABLES = 10_000

K = TypeVar("K")
V = TypeVar("V")


class RowEncoder(Protocol):
    def change(self, change: RowChange) -> bytes:
        """The message of a change."""
        ...

    def copied(self, table: TargetTable, document: bytes, key: bytes, read_ts: ClusterTime) -> bytes:
        """The message of a document that an initial copy read at this time."""
        ...


def row_encoder(feed: str, encoding: MessageEncoding) -> RowEncoder:
    return JsonRows(feed) if encoding is MessageEncoding.JSON else BsonRows(feed)


class BsonRows:
    """Each message is one BSON document."""

    def __init__(self, feed: str) -> None:
        self._feed = feed
        self._heads: dict[tuple[TargetTable, str], tuple[bytes, bytes]] = {}

    def change(self, change: RowChange) -> bytes:
        table, type_, key, document, update, time, token, details = change
        place = f"{time:016X}{OF_EVENT}{token.decode()}".encode()
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
        return self._message(table, OPS[type_], place, time, key, body, about, images)

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
        head, schema = self._heads.get((table, op)) or self._head(table, op)
        pieces = (
            head,
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

    def _head(self, table: TargetTable, op: str) -> tuple[bytes, bytes]:
        head = bson.encode({"v": VERSION, "feed": self._feed, "op": op, "ns": str(table.name), "id": table.id})
        made = head[4:-1], bson.encode({"schema": pos_of(table.version)})[4:-1]
        return kept(self._heads, (table, op), made)


class JsonRows:
    """Each message is one line of JSON, without the line's end."""

    def __init__(self, feed: str) -> None:
        self._feed = feed
        self._heads: dict[tuple[TargetTable, str], tuple[str, str]] = {}

    def change(self, change: RowChange) -> bytes:
        table, type_, key, document, update, time, token, details = change
        body = "" if update is None else f', "update": {to_json(update_body(update))}'
        about = images = ""
        if details is not None:
            wall, transaction, before, after, found = details
            about = "" if wall is None else f', "wall": {wall}'
            if transaction is not None:
                about += f', "txn": {{"lsid": "{transaction[0]}", "n": {transaction[1]}}}'
            if found is not None:
                images = f', "images": "{found}"'
                was = "" if before is None else f', "before": {to_json(before)}'
                body = was + ("" if after is None else f', "after": {to_json(after)}') + body
        if document is not None:
            body += f', "after": {to_json(document)}'
        pos = f"{time:016X}{OF_EVENT}{token.decode()}"
        return self._message(table, OPS[type_], pos, time, key, body, about, images)

    def copied(self, table: TargetTable, document: bytes, key: bytes, read_ts: ClusterTime) -> bytes:
        time = read_ts.to_int()
        return self._message(table, COPIED, f"{time:016X}{AFTER_ALL}", time, key, f', "after": {to_json(document)}')

    def _message(
        self,
        table: TargetTable,
        op: str,
        pos: str,
        time: int,
        key: bytes,
        body: str,
        about: str = "",
        images: str = "",
    ) -> bytes:
        head, schema = self._heads.get((table, op)) or self._head(table, op)
        ts = f'{{"t": {time >> 32}, "i": {time & 0xFFFFFFFF}}}'
        return f'{head}, "pos": "{pos}", "ts": {ts}{about}, {schema}{images}, "key": {key_json(key)}{body}}}'.encode()

    def _head(self, table: TargetTable, op: str) -> tuple[str, str]:
        texts = {"feed": self._feed, "op": op, "ns": str(table.name), "id": table.id}
        fields = [f'"v": {VERSION}', *(f'"{name}": {encode_basestring_ascii(text)}' for name, text in texts.items())]
        return kept(self._heads, (table, op), (f"{{{', '.join(fields)}", f'"schema": "{pos_of(table.version)}"'))


def _element(fields: Mapping[str, object]) -> bytes:
    return bson.encode(fields)[4:-1]


def kept(made: dict[K, V], key: K, value: V) -> V:
    if len(made) >= _MOST_TABLES:
        made.clear()
    made[key] = value
    return value
