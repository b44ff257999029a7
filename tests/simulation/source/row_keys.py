"""`keys_of`: the `_id`s that the rows of one run have; `as_key`, `ordered`: how the model tells them apart and orders them, without the product's code.

In half of the runs they are integers. In the others a table mixes kinds of them, in twos that look alike: a number and its text, documents that
differ in the order of their fields. No boolean is among them, which Python takes for a number, and no decimal, which it cannot hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any, TypeAlias

import bson
from bson.binary import Binary
from bson.int64 import Int64
from bson.objectid import ObjectId

KEYS = 6
"""Of rows that come and go. The others are those of rows that come with their table: what deletes them deletes them for good."""
MOST_KEYS = 12
_MIXED = 0.5
"""The part of the runs whose `_id`s are of several kinds."""
_BEGAN_MS = 1_795_219_200_000
_BEGAN = datetime.fromtimestamp(_BEGAN_MS / 1000, UTC).replace(tzinfo=None)
"""Without a zone, as documents are decoded."""


class DocumentKey(dict[str, Any]):
    """A document as an `_id`. The order of its fields counts."""

    __slots__ = ("_raw",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self._raw = bson.encode(fields)

    def __hash__(self) -> int:  # type: ignore[override]  # it is never changed
        return hash(self._raw)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and self._raw == bson.encode(other)

    def __ne__(self, other: object) -> bool:
        return not self == other


def as_key(id: Any) -> Any:
    return DocumentKey(id) if isinstance(id, dict) else id


Place: TypeAlias = tuple[int, Any]
"""Of a key among all others: compared as tuples are."""


def in_order(key: Any) -> Place:
    """As MongoDB compares values: by their types first."""
    return (_NUMBER, key) if type(key) is int else (_RANKS[type(key)], _comparable(key))


def _comparable(value: Any) -> Any:
    """Among values of its type."""
    match value:
        case None:
            return 0
        case str():
            return value.encode()
        case dict():
            return tuple((_RANKS[type(part)], name, _comparable(part)) for name, part in value.items())
        case bytes():
            return len(value), value.subtype if isinstance(value, Binary) else 0, bytes(value)
        case _:
            return value


def ordered(keys: Iterable[Any]) -> list[Any]:
    return sorted(keys, key=in_order)


def between(keys: Iterable[Any], low: Place | None, high: Place | None) -> list[Any]:
    """Those from `low` on and below `high`, in order. None: no bound."""
    places = sorted(((in_order(key), key) for key in keys), key=lambda each: each[0])
    return [key for place, key in places if (low is None or place >= low) and (high is None or place < high)]


_NUMBER = 2
_RANKS: Mapping[type, int] = {
    type(None): 1,
    **dict.fromkeys((int, Int64, float), _NUMBER),
    str: 3,
    **dict.fromkeys((dict, DocumentKey), 4),
    **dict.fromkeys((bytes, Binary), 5),
    ObjectId: 6,
    datetime: 7,
}

_TWINS: tuple[Callable[[Random, int], tuple[Any, Any]], ...] = (
    lambda random, number: (number, number + MOST_KEYS),
    lambda random, number: (number, str(number)),
    lambda random, number: (number + 0.5, str(number + 0.5)),
    lambda random, number: (DocumentKey({"a": number, "b": "x"}), DocumentKey({"b": "x", "a": number})),
    lambda random, number: (DocumentKey({"a": {"c": number}}), DocumentKey({"a": {"c": str(number)}})),
    lambda random, number: (one := ObjectId(random.randbytes(12)), str(one)),
    lambda random, number: (one := random.randbytes(16), Binary(one, 4)),
    lambda random, number: (Int64(_BEGAN_MS + number), _BEGAN + timedelta(milliseconds=number)),
    lambda random, number: (None, "None"),
)
"""Two `_id`s that look alike."""


@cache
def keys_of(seed: int) -> tuple[Any, ...]:
    random = Random(f"keys of {seed}")
    if random.random() >= _MIXED:
        return tuple(range(MOST_KEYS))
    kinds = random.sample(_TWINS, MOST_KEYS // 2)
    return tuple(key for number, twins in enumerate(kinds) for key in twins(random, number))
