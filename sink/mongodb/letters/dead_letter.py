"""`letter_update`: the document in the dead-letter collection for a row that the target refuses. Pure.

    _id                                  "<changefeed>/<table id>/<row>": one letter for each row
    changefeed, table, table_id, key     `table` is the name at the source, `key` is Extended JSON
    first_position, position             of the first and the newest refused change
    first_rejected_at, rejected_at       the target's clock
    tries, error                         how often the target has refused the row, and its newest reason
    event                                the newest refused change: its type, its key and its content as BSON bytes, and a readable text

A user's request to try a row again is a document of its own, `_id` "<changefeed>:retry/<table id>/<row>". So is a note that a row was written
as the source had it, with the time of that read, "<changefeed>:read/<table id>/<row>". All are found by a range of `_id`s, so the
collection needs no index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import bson
from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError

from changefeed.cluster_time import ClusterTime
from changefeed.documents.row_key import row_key
from changefeed.table import TableId
from sink.row import RowChange

MOST_LETTERS = 1_000
"""Open letters of one table, beyond which it stops: a cause that concerns so many rows is better removed than recorded."""
_MOST_BYTES = 12 << 20
_MOST_SHOWN_BYTES = 1 << 20
"""A larger document is not made into text: that would take seconds."""
_MOST_TEXT = 200_000
_MOST_KEY_TEXT = 500
_MOST_ERROR = 16_000

_JSON = json_util.RELAXED_JSON_OPTIONS.with_options(tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO)
_READABLE: CodecOptions[dict[str, Any]] = CodecOptions(
    dict, tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="replace"
)


def row_of(key: bytes) -> str:
    """A short name of a row, from its `documentKey`: of the `_id` alone, since a row keeps its letter when its shard key changes."""
    return hashlib.sha256(row_key(key)).hexdigest()


class Kept(StrEnum):
    """What is kept of a row. Its `_id` has this behind the changefeed."""

    LETTER = ""
    REQUEST = ":retry"
    NOTE = ":read"


def ids_of(changefeed: str, kept: Kept = Kept.LETTER, table: TableId | None = None) -> str:
    """What the `_id`s begin with."""
    return f"{changefeed}{kept}/" + (f"{table}/" if table is not None else "")


def id_of(changefeed: str, kept: Kept, table: TableId, row: str) -> str:
    return ids_of(changefeed, kept, table) + row


def note_update(changefeed: str, table: TableId, row: str, read_ts: ClusterTime) -> dict[str, Any]:
    """The statement that notes when a row was read at the source."""
    stage = {"changefeed": {"$literal": changefeed}, "read": {"$literal": read_ts.to_bson()}}
    id = id_of(changefeed, Kept.NOTE, table, row)
    return {"q": {"_id": id}, "u": [{"$set": stage}], "upsert": True, "multi": False}


def request_id(changefeed: str, letter: str) -> str:
    return ids_of(changefeed, Kept.REQUEST) + letter.removeprefix(ids_of(changefeed))


def table_and_row(id: str) -> tuple[TableId, str]:
    """From the `_id` of a letter, of a request or of a note."""
    table, _, row = id.partition("/")[2].partition("/")
    return TableId(table), row


def beginning_with(prefix: str) -> Mapping[str, str]:
    """The condition for an `_id` that begins with `prefix`, whose last character is a slash."""
    return {"$gte": prefix, "$lt": prefix[:-1] + chr(ord("/") + 1)}


def letter_update(changefeed: str, change: RowChange, said: str) -> dict[str, Any]:
    """The statement that writes or renews the letter of a row. It removes nothing of an open letter but what is newer now."""
    table, position = change.table, str(change.position)
    event: dict[str, Any] = {"type": change.type.value, "text": text_of(change.document or change.update)}
    if len(change.key) <= _MOST_BYTES:
        event["key"] = change.key
    if len(change.key) + change.size <= _MOST_BYTES:
        event |= {"document": change.document, "update": change.update}
    facts = {
        "changefeed": changefeed,
        "table": str(table.source),
        "table_id": str(table.id),
        "key": text_of(change.key, most=_MOST_KEY_TEXT),
        "position": position,
        "event": event,
        "error": said[:_MOST_ERROR],
    }
    stage = {
        **{name: {"$literal": value} for name, value in facts.items()},
        "first_position": {"$ifNull": ["$first_position", position]},
        "first_rejected_at": {"$ifNull": ["$first_rejected_at", "$$NOW"]},
        "rejected_at": "$$NOW",
        "tries": {"$add": [{"$ifNull": ["$tries", 0]}, 1]},
    }
    id = id_of(changefeed, Kept.LETTER, table.id, row_of(change.key))
    return {"q": {"_id": id}, "u": [{"$set": stage}], "upsert": True, "multi": False}


def text_of(raw: bytes | None, *, most: int = _MOST_TEXT) -> str:
    """BSON as Extended JSON, cut if it is long."""
    if raw is None:
        return ""
    if len(raw) > _MOST_SHOWN_BYTES:
        return f"... ({len(raw)} bytes)"
    try:
        text = json_util.dumps(bson.decode(raw, _READABLE), json_options=_JSON, ensure_ascii=False)
    except (BSONError, ValueError, OverflowError, RecursionError):
        return f"... ({len(raw)} bytes that are no readable BSON)"
    return text if len(text) <= most else f"{text[:most]}... ({len(raw)} bytes)"
