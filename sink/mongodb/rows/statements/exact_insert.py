"""`exact_insert`: inserts a document that an `insert` command would change. Pure.

A server replaces each top-level `Timestamp(0, 0)` of a document that it inserts or replaces with its own time, except in `_id`, in nested
fields, and in fields that an update sets. An upsert whose pipeline contains the whole document keeps the zero, in all versions:

    q: {$nor: [{}]}   u: [{$replaceWith: {$literal: document}}]   upsert: true

The query matches no document, so the upsert always inserts; an existing document with this `_id` causes a duplicate key error. Documents
with such a field are always written in this way. The same pipeline on an existing document would be right at the primary, but it is
logged as a replacement, in which the secondaries of older servers put their own time again (docs/why/order-and-replay.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from changefeed.documents.document import RAW, raw_document

_LOOSE = RAW.with_options(unicode_decode_error_handler="replace")
_KIND, _NAMED_ZERO = 0x11, bytes(9)
"""The type byte of a timestamp; and the end of its name, followed by a zero value."""
_ZERO = Timestamp(0, 0)
_NOTHING: Mapping[str, Any] = {"$nor": [{}]}


def may_hold_zero_time(raw: bytes | None) -> bool:
    """Whether the bytes can contain a zero timestamp at any place. This is a cheap test; most documents fail it. To look for one byte, as a
    number, is sixty times as fast as to look for nine.
    """
    return raw is not None and _KIND in raw and _NAMED_ZERO in raw


def holds_zero_time(document: bytes | None) -> bool:
    """Whether a server would put its own time into this document when it inserts or replaces it."""
    if document is None or not may_hold_zero_time(document):
        return False
    fields = RawBSONDocument(document, _LOOSE).items()
    return any(isinstance(value, Timestamp) and value == _ZERO and name != "_id" for name, value in fields)


def exact_insert(
    key: Mapping[str, Any], document: bytes, *, sharded: bool
) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """The query and the update of an upsert. Only a router needs the shard key in the query."""
    return {**key, **_NOTHING} if sharded else _NOTHING, [{"$replaceWith": {"$literal": raw_document(document)}}]
