"""The key of a row: `row_key` for comparing it, `key_text` for messages, `KeyRange` for parts of a table.

`row_key` is canonical bytes of a document's `_id`, equal exactly when the server treats two `_id`s as equal.

The server compares keys by value, not by bytes: 1, 1.0, NumberLong(1) and Decimal128("1.00") are one key, on their own and
inside an embedded `_id`. Events of one key in different buckets would be applied in any order.

    _id                                     canonical
    ObjectId, string, date, binary, ...     the raw documentKey itself: equal values have equal bytes
    any integral number within 64 bits      0x12 and the integer
    other numbers                           0x13 and the decimal, rounded to 34 digits as the server does
    embedded document                       its elements, one by one; the order of fields counts

Documents of a sharded collection may share an `_id` across shards. They share the row key too, which costs only parallelism.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey

from changefeed.bson_bytes import STRING, MalformedBson, document_of, element, elements, string
from changefeed.documents.document import LOSSLESS, Document, encoded_text

_ID = b"_id\x00"
_LONE = 9
"""The offset of the value in a document whose first element is `_id`."""
_LONE_OBJECT_ID = b"\x16\0\0\0\x07" + _ID
"""The beginning of a `documentKey` that holds only an ObjectId: its size leaves no room for another field."""
_BY_BYTES = frozenset({0x02, 0x05, 0x07, 0x08, 0x09, 0x0A, 0x11})
_FIXED = {0x01: 8, 0x13: 16, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x11: 8, 0x10: 4, 0x12: 8}
_INT32, _INT64 = 0x10, 0x12
_INT32_END, _INT64_END = _LONE + 4, _LONE + 8
_EXTENDED = b"\0\0\0\0", b"\xff\xff\xff\xff"
"""What makes 64 bits of the 32 of a positive and of a negative number."""
_INTEGER, _DECIMAL, _DOCUMENT, _ARRAY, _VALUE = b"\x12", b"\x13", b"\x03", b"\x04", b"\x00"
_ROUNDED = Context(prec=34)


def row_key(document_key: bytes) -> bytes:
    """From a raw `documentKey`, which holds `_id` and, in a sharded collection, the shard key's fields."""
    if document_key[:_LONE] == _LONE_OBJECT_ID:
        return document_key
    if document_key[5:_LONE] == _ID:
        kind = document_key[4]
        if kind == _INT32:
            return _INTEGER + document_key[_LONE:_INT32_END] + _EXTENDED[document_key[_INT32_END - 1] >> 7]
        if kind == _INT64:
            return _INTEGER + document_key[_LONE:_INT64_END]
        if kind in _BY_BYTES and _alone(document_key, kind):
            return document_key
    return _canonical_id(bson.decode(document_key, LOSSLESS)["_id"])


def id_alone(document: bytes) -> bytes:
    """`{_id: value}` of a document or its key, byte for byte."""
    for name, _, at, end in elements(document):
        if name == b"_id":
            return document_of([document[at - len(name) - 2 : end]])
    raise MalformedBson("a stored document has no _id")


def only_id(document_key: bytes) -> bool:
    """Whether `_id` is the only field, as in a collection that is not sharded."""
    if document_key[:_LONE] == _LONE_OBJECT_ID:
        return True
    if document_key[5:_LONE] == _ID and ((kind := document_key[4]) in _FIXED or kind in _BY_BYTES):
        return _alone(document_key, kind)
    return len(bson.decode(document_key, LOSSLESS)) == 1


def _alone(document_key: bytes, kind: int) -> bool:
    if (fixed := _FIXED.get(kind)) is not None:
        return len(document_key) == _LONE + fixed + 1
    head = 4 if kind == 0x02 else 5
    return len(document_key) == _LONE + head + int.from_bytes(document_key[_LONE : _LONE + 4], "little") + 1


def _canonical_id(value: Any) -> bytes:
    """The same bytes as the fast path of `row_key`, for an `_id` beside shard key fields."""
    found = canonical(value)
    return _encoded("_id", value) if found[:1] == _VALUE else found


def canonical(value: Any) -> bytes:
    """The canonical bytes of any value that was decoded without loss: equal if the server treats two values as equal."""
    if isinstance(value, bool):
        return _VALUE + _encoded("", value)
    if isinstance(value, (int, float, Decimal128)):
        return _number(value)
    if isinstance(value, Mapping):
        return _DOCUMENT + b"".join(
            encoded_text(name) + b"\x00" + _framed(canonical(part)) for name, part in value.items()
        )
    if isinstance(value, list):
        return _ARRAY + b"".join(_framed(canonical(part)) for part in value)
    return _VALUE + _encoded("", value)


def _encoded(name: str, value: Any) -> bytes:
    """A document of one field."""
    try:
        return bson.encode({name: value})
    except UnicodeEncodeError:  # the driver encodes no text that is not UTF-8
        if type(value) is not str:
            return name.encode() + b"\0" + ascii(value).encode()
        return document_of([element(STRING, name.encode(), string(encoded_text(value)))])


def _framed(part: bytes) -> bytes:
    return len(part).to_bytes(4, "little") + part


def _number(value: Int64 | float | Decimal128) -> bytes:
    if isinstance(value, int):
        return _INTEGER + _int64(value)
    decimal = value.to_decimal() if isinstance(value, Decimal128) else _from_double(value)
    if decimal.is_nan():
        return _DECIMAL + b"NaN"
    if decimal.is_infinite():
        return _DECIMAL + (b"Infinity" if decimal > 0 else b"-Infinity")
    if -20 < decimal.adjusted() < 20 and decimal == (integral := int(decimal)) and -(2**63) <= integral < 2**63:
        return _INTEGER + _int64(integral)
    if not decimal:
        return _INTEGER + _int64(0)
    sign, digits, exponent = decimal.as_tuple()
    trimmed = "".join(map(str, digits)).rstrip("0")
    return _DECIMAL + f"{'-' if sign else ''}{trimmed}e{int(exponent) + len(digits) - len(trimmed)}".encode()


def _from_double(value: float) -> Decimal:
    return Decimal(value) if not math.isfinite(value) else _ROUNDED.create_decimal_from_float(value)


def _int64(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


_MOST = 200
_READABLE: CodecOptions[dict[str, Any]] = CodecOptions(
    dict, datetime_conversion=DatetimeConversion.DATETIME_MS, unicode_decode_error_handler="replace"
)


def key_text(key: bytes) -> str:
    """From a raw `documentKey`. A long one is cut, and its size is added."""
    text = str(bson.decode(key, _READABLE))
    return text if len(text) <= _MOST else f"{text[:_MOST]}... ({len(key)} bytes)"


LAST_KEY = Document.of({"_id": MaxKey()})
"""The greatest of all keys. A scan with `min` but without `max` ends before it (all versions to 6.0.27, except in clustered collections)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """Half-open. An end that is None has no limit. Ends are documents of one field, `{_id: value}`, so that no type is lost."""

    lower: Document | None = None
    upper: Document | None = None

    @property
    def last_key_apart(self) -> bool:
        """Whether a scan of the range misses `LAST_KEY`, although it is in the range."""
        return self.lower is not None and self.upper is None

    def __str__(self) -> str:
        return f"[{self.lower or 'the first'}, {self.upper or 'the end'})"


def ranges_between(bounds: Iterable[Document]) -> Iterator[KeyRange]:
    """The contiguous ranges between ascending bounds. They cover all keys: always one range more than bounds."""
    lower = None
    for bound in bounds:
        yield KeyRange(lower=lower, upper=bound)
        lower = bound
    yield KeyRange(lower=lower)
