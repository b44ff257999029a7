"""`document_key`, `fields_sorted`, `key_text`, `describe`: the key, the canonical form and the text of a document in raw bytes, and the differences of two. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from struct import Struct
from typing import Any, TypeAlias

import bson
from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.json_util import JSONMode, JSONOptions

from changefeed.bson_bytes import ARRAY, DOCUMENT, document_of, elements

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
    return document_of(sorted(_elements_sorted(document)))


def _elements_sorted(document: bytes) -> Iterator[bytes]:
    """By their bytes: values of some types, and repeated fields, decode to less than they are."""
    for name, kind, at, end in elements(document):
        value = document[at:end]
        if kind == DOCUMENT:
            value = fields_sorted(value)
        elif kind == ARRAY:
            value = document_of(list(_elements_sorted(value)))
        yield b"%c%b\x00%b" % (kind, name, value)


def key_text(key: bytes) -> str:
    """The `_id` as relaxed Extended JSON, which shows a type only where it would be ambiguous."""
    return value_text(bson.decode(key, OPTIONS).get("_id"), relaxed=True)


def value_text(value: Any, *, relaxed: bool = False) -> str:
    return json_util.dumps(value, json_options=_RELAXED if relaxed else _JSON, ensure_ascii=False)


_MOST = 5
_LONGEST = 60


def describe(source: bytes, target: bytes) -> tuple[str, ...]:
    """Return the first few differences between two versions of a document, as text.

    qty is 3 at the source, 4 at the target
    address.city is missing at the target
    price is {"$numberInt": "1"} at the source, {"$numberDouble": "1.0"} at the target
    the fields are in another order

    Documents that decode to the same value differ in their bytes only, for example by a repeated field.
    """
    left, right = bson.decode(source, OPTIONS), bson.decode(target, OPTIONS)
    found = tuple(islice(_differences("", left, right), _MOST))
    return found or ("the documents differ in their bytes only",)


def _differences(path: str, source: Any, target: Any) -> Iterator[str]:
    if isinstance(source, Mapping) and isinstance(target, Mapping):
        yield from _of_fields(path, source, target)
    elif isinstance(source, list) and isinstance(target, list):
        yield from _of_lists(path, source, target)
    elif (left := value_text(source)) != (right := value_text(target)):
        plain = value_text(source, relaxed=True), value_text(target, relaxed=True)
        left, right = plain if plain[0] != plain[1] else (left, right)
        yield f"{path} is {_short(left)} at the source, {_short(right)} at the target"


def _of_fields(path: str, source: Mapping[str, Any], target: Mapping[str, Any]) -> Iterator[str]:
    for name in source:
        if name not in target:
            yield f"{_join(path, name)} is missing at the target"
    for name in target:
        if name not in source:
            yield f"{_join(path, name)} is at the target only"
    common = [name for name in source if name in target]
    for name in common:
        yield from _differences(_join(path, name), source[name], target[name])
    if common != [name for name in target if name in source]:
        yield f"the fields{f' of {path}' if path else ''} are in another order"


def _of_lists(path: str, source: list[Any], target: list[Any]) -> Iterator[str]:
    if len(source) != len(target):
        yield f"{path} has {len(source)} elements at the source, {len(target)} at the target"
    for number, (left, right) in enumerate(zip(source, target, strict=False)):
        yield from _differences(_join(path, str(number)), left, right)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
