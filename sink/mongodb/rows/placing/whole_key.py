"""The whole key of a row in a table that the target shards: its `_id`, and the fields of the target's shard key. Pure.

    shard key {customer: 1, "at.day": 1}

    document {_id: 7, customer: 3, at: {day: 2}}     {_id: 7, customer: 3, "at.day": 2}
    document {_id: 7, customer: 3}                   {_id: 7, customer: 3, "at.day": null}: a router finds it so
    key of an event {customer: 3, _id: 7}            None: the day may be missing, or the source's shard key does not have it

A filter with the whole key goes to one shard, with a version that the shard checks. One with the `_id` alone goes to all shards, without one, and
misses a document whose chunk moves meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from changefeed.documents.document import meet

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)
_ID = "_id"


def id_alone(key: bytes) -> bytes:
    return bson.encode({_ID: RawBSONDocument(key, _RAW)[_ID]}, codec_options=_RAW)


def key_of_document(document: bytes, paths: Sequence[str]) -> bytes:
    raw = RawBSONDocument(document, _RAW)
    return bson.encode({_ID: raw[_ID], **{path: _at(raw, path) for path in paths}}, codec_options=_RAW)


def key_of_event(key: bytes, paths: Sequence[str]) -> bytes | None:
    """From the `documentKey`. None if it does not have all fields; it does not tell a missing one from one of which the source knows nothing."""
    raw = RawBSONDocument(key, _RAW)
    if any(path not in raw for path in paths):
        return None
    return bson.encode({_ID: raw[_ID], **{path: raw[path] for path in paths}}, codec_options=_RAW)


def unplaced_key(key: bytes, paths: Sequence[str]) -> bytes:
    """Of a row that the target does not have."""
    return key_of_document(id_alone(key), paths)


def touches(update: bytes | None, paths: Sequence[str]) -> bool:
    """Whether the update may change the shard key. A name with dots inside a field counts as a path, too."""
    raw = RawBSONDocument(update or bson.encode({}), _RAW)
    names = [*(raw.get("updatedFields") or ()), *(raw.get("removedFields") or ())]
    names += [array["field"] for array in raw.get("truncatedArrays") or ()]
    return any(meet(name, path) for name in names for path in paths)


def _at(document: Mapping[str, Any], path: str) -> Any:
    """A missing field is found as null. No part of a shard key is an array."""
    value: Any = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
