"""`document_key`, `fields_sorted`, `key_text`: the key, the canonical form and the text of a document in raw bytes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from struct import Struct
from typing import Any, TypeAlias

import bson
from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.json_util import JSONMode, JSONOptions

from changefeed.bson_bytes import document_of, elements

Canonical: TypeAlias = Callable[[bytes], bytes]
"""Returns equal bytes for documents that count as equal."""

OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(
    dict, datetime_conversion=DatetimeConversion.DATETIME_MS, unicode_decode_error_handler="replace"
)
_JSON = JSONOptions(json_mode=JSONMode.CANONICAL)
_RELAXED = JSONOptions(json_mode=JSONMode.RELAXED)
_INT32: Callable[[bytes, int], tuple[int]] = Struct("<i").unpack_from
_ID_FIRST = b"_id\x00"


def documents_in(batch: bytes) -> Iterator[bytes]:
    """The documents of a batch, which contains one after the other."""
    at = 0
    while at < len(batch):
        end = at + _INT32(batch, at)[0]
        yield batch[at:end]
        at = end


def count_in(batch: bytes) -> int:
    count = at = 0
    while at < len(batch):
        at += _INT32(batch, at)[0]
        count += 1
    return count


def document_key(document: bytes) -> bytes:
    """`{_id: ...}` with the document's bytes."""
    for name, kind, at, end in elements(document):
        if name == b"_id":
            return document_of([bytes((kind,)), _ID_FIRST, document[at:end]])
    return document_of([])


def as_it_is(document: bytes) -> bytes:
    return document


def fields_sorted(document: bytes) -> bytes:
    """Ignores the order of fields, at any depth, but not the order of array elements."""
    return bson.encode(_sorted(bson.decode(document, OPTIONS)))


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(part) for part in value] if isinstance(value, list) else value


def key_text(key: bytes) -> str:
    """The `_id` as relaxed Extended JSON, which shows a type only where it would be ambiguous."""
    return value_text(bson.decode(key, OPTIONS).get("_id"), relaxed=True)


def value_text(value: Any, *, relaxed: bool = False) -> str:
    return json_util.dumps(value, json_options=_RELAXED if relaxed else _JSON, ensure_ascii=False)
