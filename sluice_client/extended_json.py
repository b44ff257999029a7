"""`to_json`: canonical Extended JSON of raw BSON, made from the bytes without decoding the document. Pure.

Text stays UTF-8: only quotes, backslashes and control characters are escaped.

The text equals that of `bson.json_util` with `CANONICAL_JSON_OPTIONS` and `ensure_ascii=False`, byte for byte, for everything that PyMongo can encode. What PyMongo
cannot tell apart after decoding is kept apart here, as the specification of Extended JSON writes it:

    0x06 undefined      {"$undefined": true}                           json_util: null
    0x0c DBPointer      {"$dbPointer": {"$ref": "a.b", "$id": {..}}}   json_util: a DBRef
    0x0e symbol         {"$symbol": "x"}                               json_util: "x"

The fields of a document that looks like a DBRef stay in their order. Text that is not UTF-8 has no JSON: `NoJson`.

Other dialects are those of MongoDB's driver for Java, for consumers that know Debezium; all are compact, with no space behind a comma:

    STRICT       {"a": 7,"b": {"$numberLong": "7"},"c": {"$date": 1500},"d": {"$binary": "AQI=","$type": "00"}}
    RELAXED      {"a": 7,"b": 7,"c": {"$date": "1970-01-01T00:00:01.5Z"},"d": {"$binary": {"base64": "AQI=","subType": "00"}}}
    COMPACT      canonical
    SPACED       relaxed, with spaces: the driver's default

A number that JSON does not have is {"$numberDouble": "NaN"} in each of them.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from json.encoder import encode_basestring
from struct import Struct
from typing import NamedTuple, TypeAlias

from bson.decimal128 import Decimal128

from sluice_client.feed_errors import InvariantError, RowRejected

_INT32: Callable[[bytes, int], tuple[int]] = Struct("<i").unpack_from
_INT64: Callable[[bytes, int], tuple[int]] = Struct("<q").unpack_from
_DOUBLE: Callable[[bytes, int], tuple[float]] = Struct("<d").unpack_from
_TIMESTAMP: Callable[[bytes, int], tuple[int, int]] = Struct("<II").unpack_from

_ARRAY = 0x04
_MOST_NAMES = 20_000
_LONGEST_NAME = 40

_repr = float.__repr__
_quoted = encode_basestring
_names: dict[bytes, str] = {}
"""Field names as they begin an element: most documents have the same few."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999."""


_Members: TypeAlias = "Callable[[bytes, int, dict[bytes, str] | None], str]"


class Forms(NamedTuple):
    """What stands before and behind numbers. No `date`: as in a calendar. `first`: binary, regular expressions and DBPointers as in the first
    version of Extended JSON.
    """

    comma: str
    int32: tuple[str, str]
    int64: tuple[str, str]
    double: tuple[str, str]
    date: tuple[str, str] | None
    first: bool = False


class Dialect(NamedTuple):
    forms: Forms
    members: _Members
    """Writes the document of some bytes that starts at an offset; an array, if there are no names."""

    def nested(self, raw: bytes, at: int) -> str:
        return self.members(raw, at, _names)

    def array(self, raw: bytes, at: int) -> str:
        return self.members(raw, at, None)


def iso_date(ms: int) -> str:
    if not 0 <= ms <= _LAST_MS:
        return f'{{"$date": {{"$numberLong": "{ms}"}}}}'
    seconds, fraction = divmod(ms, 1000)
    text = f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}"
    return f'{{"$date": "{text}{f".{fraction:03d}".rstrip("0") if fraction else ""}Z"}}'


_PLAIN = "", ""
_INT, _LONG, _DOUBLE_TEXT = ('{"$numberInt": "', '"}'), ('{"$numberLong": "', '"}'), ('{"$numberDouble": "', '"}')
_LONG_DATE, _PLAIN_DATE = ('{"$date": {"$numberLong": "', '"}}'), ('{"$date": ', "}")


class DamagedBson(InvariantError):
    """These bytes are not BSON."""


class NoJson(RowRejected):
    """The document has text that is not UTF-8."""


def _writer(forms: Forms) -> _Members:  # noqa: C901 - one case for each type
    """One function that writes all, since a call for each value would cost half of it."""
    comma, (int32, int32_end), (int64, int64_end), (double, double_end), dated, _ = forms
    date, date_end = dated or _PLAIN
    calendar = dated is None

    def members(raw: bytes, at: int, names: dict[bytes, str] | None) -> str:  # noqa: C901, PLR0912 - one case for each type
        end = at + _INT32(raw, at)[0] - 1
        at += 4
        parts: list[str] = []
        add = parts.append
        while at < end:
            kind = raw[at]
            name_end = raw.index(0, at + 1)
            name = "" if names is None else names.get(raw[at + 1 : name_end]) or field_name(raw[at + 1 : name_end])
            at = name_end + 1
            if kind == 0x02:
                size = _INT32(raw, at)[0]
                add(name + _quoted(raw[at + 4 : at + 3 + size].decode()))
                at += 4 + size
            elif kind == 0x10:
                add(f"{name}{int32}{_INT32(raw, at)[0]}{int32_end}")
                at += 4
            elif kind == 0x07:
                add(f'{name}{{"$oid": "{raw[at : at + 12].hex()}"}}')
                at += 12
            elif kind == 0x12:
                add(f"{name}{int64}{_INT64(raw, at)[0]}{int64_end}")
                at += 8
            elif kind == 0x01:
                value = _DOUBLE(raw, at)[0]
                add(f"{name}{double}{_repr(value)}{double_end}" if value - value == 0.0 else name + infinite(value))
                at += 8
            elif kind == 0x09:
                add(name + iso_date(_INT64(raw, at)[0]) if calendar else f"{name}{date}{_INT64(raw, at)[0]}{date_end}")
                at += 8
            elif kind == 0x03:
                add(name + members(raw, at, _names))
                at += _INT32(raw, at)[0]
            elif kind == _ARRAY:
                add(name + members(raw, at, None))
                at += _INT32(raw, at)[0]
            elif kind == 0x08:
                add(name + ("true" if raw[at] else "false"))
                at += 1
            elif kind == 0x0A:
                add(name + "null")
            else:
                text, at = _seldom(raw, kind, at, forms, members)
                add(name + text)
        if at != end or raw[end] != 0:
            raise DamagedBson(f"a document's elements end at byte {at}, but by its size they should end at byte {end}")
        return f"[{comma.join(parts)}]" if names is None else f"{{{comma.join(parts)}}}"

    return members


def _seldom(raw: bytes, kind: int, at: int, forms: Forms, members: _Members) -> tuple[str, int]:  # noqa: C901, PLR0911 - one case for each type
    comma = forms.comma
    match kind:
        case 0x05:
            return _binary(raw, at, forms)
        case 0x06:
            return '{"$undefined": true}', at
        case 0x0B:
            return _regex(raw, at, forms)
        case 0x0C:
            name, at = _string(raw, at)
            reference = f'{{"$ref": {name}{comma}"$id": {{"$oid": "{raw[at : at + 12].hex()}"}}}}'
            return reference if forms.first else f'{{"$dbPointer": {reference}}}', at + 12
        case 0x0D:
            code, at = _string(raw, at)
            return f'{{"$code": {code}}}', at
        case 0x0E:
            symbol, at = _string(raw, at)
            return f'{{"$symbol": {symbol}}}', at
        case 0x0F:
            code, scope_at = _string(raw, at + 4)
            scope = members(raw, scope_at, _names)
            return f'{{"$code": {code}{comma}"$scope": {scope}}}', at + _INT32(raw, at)[0]
        case 0x11:
            increment, seconds = _TIMESTAMP(raw, at)
            return f'{{"$timestamp": {{"t": {seconds}{comma}"i": {increment}}}}}', at + 8
        case 0x13:
            return f'{{"$numberDecimal": "{Decimal128.from_bid(raw[at : at + 16])}"}}', at + 16
        case 0xFF:
            return '{"$minKey": 1}', at
        case 0x7F:
            return '{"$maxKey": 1}', at
        case _:
            raise DamagedBson(f"type 0x{kind:02x} at byte {at} is not a BSON type")


def field_name(name: bytes) -> str:
    text = f"{_quoted(name.decode())}: "
    if len(name) <= _LONGEST_NAME and len(_names) < _MOST_NAMES:
        _names[name] = text
    return text


def _string(raw: bytes, at: int) -> tuple[str, int]:
    end = at + 4 + _INT32(raw, at)[0]
    return _quoted(raw[at + 4 : end - 1].decode()), end


def infinite(value: float) -> str:
    text = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[repr(value)]
    return f'{{"$numberDouble": "{text}"}}'


def _binary(raw: bytes, at: int, forms: Forms) -> tuple[str, int]:
    """The old subtype 2 has a second size inside."""
    end, subtype = at + 5 + _INT32(raw, at)[0], raw[at + 4]
    content = raw[at + 9 if subtype == 2 else at + 5 : end]
    text, comma = b64encode(content).decode(), forms.comma
    if forms.first:
        return f'{{"$binary": "{text}"{comma}"$type": "{subtype:02x}"}}', end
    return f'{{"$binary": {{"base64": "{text}"{comma}"subType": "{subtype:02x}"}}}}', end


def _regex(raw: bytes, at: int, forms: Forms) -> tuple[str, int]:
    pattern_end = raw.index(0, at)
    end = raw.index(0, pattern_end + 1)
    pattern, options = raw[at:pattern_end].decode(), raw[pattern_end + 1 : end].decode()
    comma = forms.comma
    if forms.first:
        return f'{{"$regex": {_quoted(pattern)}{comma}"$options": {_quoted(options)}}}', end + 1
    return f'{{"$regularExpression": {{"pattern": {_quoted(pattern)}{comma}"options": {_quoted(options)}}}}}', end + 1


def _dialect(forms: Forms) -> Dialect:
    return Dialect(forms, _writer(forms))


_FORMS = Forms(", ", _INT, _LONG, _DOUBLE_TEXT, _LONG_DATE)
_RELAXED = Forms(",", _PLAIN, _PLAIN, _PLAIN, None)
CANONICAL = _dialect(_FORMS)
COMPACT = _dialect(_FORMS._replace(comma=","))
STRICT = _dialect(Forms(",", _PLAIN, _LONG, _PLAIN, _PLAIN_DATE, first=True))
RELAXED = _dialect(_RELAXED)
SPACED = _dialect(_RELAXED._replace(comma=", "))


def to_json(document: bytes, dialect: Dialect = CANONICAL) -> str:
    try:
        return dialect.members(document, 0, _names)
    except UnicodeDecodeError as error:
        raise NoJson(
            f"bytes {error.start} to {error.end} of a text are not UTF-8, which BSON can have and JSON cannot"
        ) from None


def first_value(document: bytes, dialect: Dialect) -> str:
    """Of a document with one field: what stands behind its name."""
    return to_json(document, dialect).partition(": ")[2][:-1]
