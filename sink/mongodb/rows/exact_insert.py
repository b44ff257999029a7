"""Inserting what an `insert` would not leave as it is. Pure.

A server puts its own time into each top-level `Timestamp(0, 0)` of a document that it inserts or replaces; not into `_id`, nothing nested,
and nothing that an update sets. An upsert whose pipeline names the whole document leaves it alone, in all versions:

    q: {$nor: [{}]}   u: [{$replaceWith: {$literal: document}}]   upsert: true

It finds no document whatever stands there, so it always inserts, and one that has the `_id` already is a duplicate key. That is how such documents
are always written. The same pipeline on a document that is there would give the right one at the primary, but be logged as a replacement, of which the
secondaries of older servers make their own time again (docs/decisions/0025).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)
_LOOSE = _RAW.with_options(unicode_decode_error_handler="replace")
_KIND, _NAMED_ZERO = b"\x11", bytes(9)
"""The type of a timestamp, and the end of its name before it."""
_ZERO = Timestamp(0, 0)
_NOTHING: Mapping[str, Any] = {"$nor": [{}]}


def may_hold_zero_time(raw: bytes | None) -> bool:
    """Whether some bytes can hold a zero timestamp anywhere. Most cannot, and this costs next to nothing."""
    return raw is not None and _NAMED_ZERO in raw and _KIND in raw


def holds_zero_time(document: bytes | None) -> bool:
    """Whether a server would put its own time into this document."""
    if document is None or not may_hold_zero_time(document):
        return False
    fields = RawBSONDocument(document, _LOOSE).items()
    return any(isinstance(value, Timestamp) and value == _ZERO and name != "_id" for name, value in fields)


def exact_insert(
    key: Mapping[str, Any], document: bytes, *, sharded: bool
) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """The query and the update of an upsert. A router wants to know the shard key; elsewhere the key would only take room."""
    return {**key, **_NOTHING} if sharded else _NOTHING, [
        {"$replaceWith": {"$literal": RawBSONDocument(document, _RAW)}}
    ]
