"""`from_json`: the raw BSON of a document, from the canonical Extended JSON that `to_json` has written of it. Pure.

Only what `to_json` writes for a value is taken for that value. Everything else is a document of users, with their names:

    {"a": {"$oid": "65f0c0ffee65f0c0ffee65f0"}}                an ObjectId
    {"a": {"$oid": "zz"}}, {"a": {"$oid": "65f0..", "b": 1}}    documents
    {"a": {"$regex": "^x"}}, {"a": {"$date": "2026-11-29"}}     documents: no other dialect means anything here

A document that is just {"$oid": "65f0c0ffee65f0c0ffee65f0"} has the text of the ObjectId, and is read as that.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as NoBase64
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, TypeAlias

from bson.decimal128 import Decimal128

from sluice_client.feed_errors import InvariantError

Members: TypeAlias = tuple[tuple[str, Any], ...]
"""Of an object of JSON, whose objects are such pairs, too: a name may come twice."""
_Element: TypeAlias = tuple[int, bytes]
"""The type of a value, and its bytes."""

_INT32, _INT64, _DOUBLE, _TIMESTAMP = (Struct(form).pack for form in ("<i", "<q", "<d", "<II"))
_OID, _SUBTYPE = re.compile(r"[0-9a-f]{24}"), re.compile(r"[0-9a-f]{2}")
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
_REAL = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[-+][0-9]+)?|NaN|-?Infinity")
_NOT_FINITE = {"NaN", "Infinity", "-Infinity"}
_OLD_BINARY = 2


class DamagedJson(InvariantError):
    """This text is not canonical Extended JSON."""


def from_json(text: str | bytes) -> bytes:
    return bson_of(members_of(text))


def members_of(text: str | bytes) -> Members:
    members: Members = json.loads(text, object_pairs_hook=tuple)
    return members


def bson_of(document: Members) -> bytes:
    return _document([(_name(name), value) for name, value in document])


def _document(elements: list[tuple[bytes, Any]]) -> bytes:
    body = b"".join([b"%c%s\0%s" % (kind, name, raw) for name, (kind, raw) in ((n, _value(v)) for n, v in elements)])
    return _INT32(len(body) + 5) + body + b"\0"


def _value(value: Any) -> _Element:
    if isinstance(value, str):
        return 0x02, _string(value)
    if isinstance(value, tuple):
        return _extended(value) or (0x03, bson_of(value))
    if isinstance(value, list):
        return 0x04, _document([(b"%d" % number, each) for number, each in enumerate(value)])
    if isinstance(value, bool):
        return 0x08, b"\1" if value else b"\0"
    if value is None:
        return 0x0A, b""
    raise DamagedJson(
        f'expected canonical Extended JSON, such as {{"$numberInt": "7"}}, found the plain number {value}'
    )


def _extended(members: Members) -> _Element | None:
    """None if it is a document."""
    if not members or not members[0][0].startswith("$"):
        return None
    names, values = zip(*members, strict=True)
    read = _READERS.get(names)
    return None if read is None else read(*values)


def _within(value: Any, *names: str) -> tuple[Any, ...] | None:
    """The values of an object with just these names in this order."""
    if isinstance(value, tuple) and tuple(name for name, _ in value) == names:
        return tuple(each for _, each in value)
    return None


def _is(form: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and form.fullmatch(value) is not None


def _name(name: str) -> bytes:
    if "\0" in name:
        raise DamagedJson(f"expected a field name without a null character, found {name!r}")
    return name.encode()


def _string(text: str) -> bytes:
    raw = text.encode()
    return _INT32(len(raw) + 1) + raw + b"\0"


def _whole(kind: int, bits: int, pack: Callable[[int], bytes]) -> Callable[[Any], _Element | None]:
    def read(text: Any) -> _Element | None:
        if not _is(_WHOLE, text) or not -(1 << bits - 1) <= (number := int(text)) < 1 << bits - 1:
            return None
        return kind, pack(number)

    return read


_int64 = _whole(0x12, 64, _INT64)


def _double(text: Any) -> _Element | None:
    if not _is(_REAL, text) or not (text in _NOT_FINITE or repr(float(text)) == text):
        return None
    return 0x01, _DOUBLE(float(text))


def _decimal(text: Any) -> _Element | None:
    try:
        number = Decimal128(text) if isinstance(text, str) else None
    except ArithmeticError:
        return None
    return (0x13, number.bid) if number is not None and str(number) == text else None


def _oid(text: Any) -> _Element | None:
    return (0x07, bytes.fromhex(text)) if _is(_OID, text) else None


def _date(value: Any) -> _Element | None:
    inner = _within(value, "$numberLong")
    number = None if inner is None else _int64(*inner)
    return None if number is None else (0x09, number[1])


def _timestamp(value: Any) -> _Element | None:
    seconds, increment = _within(value, "t", "i") or (None, None)
    if not all(type(each) is int and 0 <= each < 1 << 32 for each in (seconds, increment)):
        return None
    return 0x11, _TIMESTAMP(increment, seconds)


def _binary(value: Any) -> _Element | None:
    text, subtype = _within(value, "base64", "subType") or (None, None)
    if not isinstance(text, str) or not _is(_SUBTYPE, subtype):
        return None
    try:
        content = b64decode(text, validate=True)
    except NoBase64:
        return None
    if b64encode(content).decode() != text:
        return None
    if (kind := int(subtype, 16)) == _OLD_BINARY:
        content = _INT32(len(content)) + content
    return 0x05, _INT32(len(content)) + bytes([kind]) + content


def _regex(value: Any) -> _Element | None:
    texts = _within(value, "pattern", "options")
    if texts is None or not all(isinstance(text, str) and "\0" not in text for text in texts):
        return None
    return 0x0B, b"".join(text.encode() + b"\0" for text in texts)


def _pointer(value: Any) -> _Element | None:
    name, id = _within(value, "$ref", "$id") or (None, None)
    found = _oid(*(_within(id, "$oid") or (None,)))
    return (0x0C, _string(name) + found[1]) if isinstance(name, str) and found is not None else None


def _scoped(code: Any, scope: Any) -> _Element | None:
    if not isinstance(code, str) or not isinstance(scope, tuple):
        return None
    content = _string(code) + bson_of(scope)
    return 0x0F, _INT32(len(content) + 4) + content


def _text(kind: int) -> Callable[[Any], _Element | None]:
    return lambda text: (kind, _string(text)) if isinstance(text, str) else None


def _sign(kind: int, sign: object) -> Callable[[Any], _Element | None]:
    return lambda value: (kind, b"") if type(value) is type(sign) and value == sign else None


_READERS: Mapping[tuple[str, ...], Callable[..., _Element | None]] = {
    ("$numberInt",): _whole(0x10, 32, _INT32),
    ("$numberLong",): _int64,
    ("$numberDouble",): _double,
    ("$numberDecimal",): _decimal,
    ("$oid",): _oid,
    ("$date",): _date,
    ("$timestamp",): _timestamp,
    ("$binary",): _binary,
    ("$regularExpression",): _regex,
    ("$dbPointer",): _pointer,
    ("$code",): _text(0x0D),
    ("$code", "$scope"): _scoped,
    ("$symbol",): _text(0x0E),
    ("$undefined",): _sign(0x06, sign=True),
    ("$minKey",): _sign(0xFF, sign=1),
    ("$maxKey",): _sign(0x7F, sign=1),
}
"""What the members of an object with these names are, if they are what `to_json` writes there."""
