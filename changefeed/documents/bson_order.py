"""`compare`: MongoDB's order of BSON values, for values as PyMongo decodes them (it decodes `undefined` as null)."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, TypeAlias

from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from changefeed.documents.document import encoded_text


class _Missing(Enum):
    MISSING = "missing"


MISSING = _Missing.MISSING
"""The field does not exist. It is no BSON value, but expressions test for it."""

Missing: TypeAlias = Literal[_Missing.MISSING]

_RANKS: tuple[tuple[type | tuple[type, ...], int], ...] = (
    (MinKey, -1),
    (bool, 40),  # before int: it is a subclass
    ((int, float, Decimal128), 10),
    (Code, 60),  # before str: it is a subclass
    (str, 15),
    (Mapping, 20),
    ((Binary, bytes), 30),
    (ObjectId, 35),
    ((datetime, DatetimeMS), 45),
    (Timestamp, 47),
    ((Regex, re.Pattern), 50),
    (DBRef, 55),  # the deprecated pointer type; in a RawBSONDocument, a document with `$ref` stays a Mapping
    ((list, tuple), 25),
    (MaxKey, 127),
)


def rank(value: Any) -> int:
    """MongoDB's canonical type. Values of one rank compare by value, others by their ranks. Missing counts as null."""
    if value is None or value is MISSING:
        return 5
    kind = type(value)
    found = _RANK_OF.get(kind)
    if found is None:
        found = _RANK_OF[kind] = next((number for kinds, number in _RANKS if issubclass(kind, kinds)), 100)
    return 65 if found == 60 and value.scope is not None else found


_RANK_OF: dict[type, int] = {}
"""Of the classes that were asked for."""


def same_type(left: Any, right: Any) -> bool:
    return rank(left) == rank(right)


def compare(left: Any, right: Any) -> int:
    """Negative, zero or positive."""
    ranks = (rank(left), rank(right))
    if ranks[0] != ranks[1]:
        return ranks[0] - ranks[1]
    match ranks[0]:
        case 20:
            return _compare_documents(left, right)
        case 25:
            return _compare_lists(left, right)
        case 65:
            return _sign(str(left), str(right)) or compare(left.scope, right.scope)
        case number:
            key = _KEYS.get(number, _itself)
            return _sign(key(left), key(right))


def equality_key(value: Any) -> Hashable | None:
    """Equal for values that `compare` as equal, NaN included. None: only `compare` can tell, as for a document."""
    number = rank(value)
    return (number, _KEYS.get(number, _itself)(value)) if number in _WITH_KEY else None


def is_nan(value: Any) -> bool:
    return rank(value) == 10 and _number(value)[0] == 0


def _sign(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _number(value: Any) -> tuple[int, Decimal | int | float]:
    """NaN sorts below every number. Ints and floats are not converted, since Python compares them exactly."""
    number = value.to_decimal() if isinstance(value, Decimal128) else value
    if number.is_nan() if isinstance(number, Decimal) else number != number:  # noqa: PLR0124 -- true for NaN only
        return 0, 0  # Python does not even compare a signaling NaN
    return 1, number


def regex_parts(value: Regex[str] | re.Pattern[str]) -> tuple[str, str]:
    regex = value if isinstance(value, Regex) else Regex.from_native(value)
    return regex.pattern, "".join(option for flag, option in _REGEX_OPTIONS if regex.flags & flag)


_REGEX_OPTIONS = (
    (re.IGNORECASE, "i"),
    (re.LOCALE, "l"),
    (re.MULTILINE, "m"),
    (re.DOTALL, "s"),
    (re.UNICODE, "u"),
    (re.VERBOSE, "x"),
)


def _binary(value: bytes) -> tuple[int, int, bytes]:
    return len(value), value.subtype if isinstance(value, Binary) else 0, bytes(value)


def _moment(value: datetime | DatetimeMS) -> int:
    """In milliseconds, the unit of BSON: Python has no other form for dates beyond the year 9999."""
    return int(DatetimeMS(value)) if isinstance(value, datetime) else int(value)


def _pointer(value: DBRef) -> tuple[int, str, bytes]:
    """By the length of the name first, as the server does."""
    return len(value.collection.encode()), value.collection, ObjectId(value.id).binary


def _itself(value: Any) -> Any:
    return value


_KEYS: dict[int, Callable[[Any], Any]] = {
    -1: lambda _: 0,
    5: lambda _: 0,
    10: _number,
    15: encoded_text,
    30: _binary,
    45: _moment,
    50: regex_parts,
    55: _pointer,
    60: encoded_text,
    127: lambda _: 0,
}
_WITH_KEY = frozenset({*_KEYS, 35, 40, 47} - {55, 60})


def _compare_documents(left: Mapping[str, Any], right: Mapping[str, Any]) -> int:
    """Field by field: the types first, then the names, then the values."""
    for (left_name, left_value), (right_name, right_value) in zip(left.items(), right.items(), strict=False):
        order = (
            rank(left_value) - rank(right_value)
            or _sign(encoded_text(left_name), encoded_text(right_name))
            or compare(left_value, right_value)
        )
        if order:
            return order
    return len(left) - len(right)


def _compare_lists(left: Sequence[Any], right: Sequence[Any]) -> int:
    for left_value, right_value in zip(left, right, strict=False):
        if order := compare(left_value, right_value):
            return order
    return len(left) - len(right)
