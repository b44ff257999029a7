"""`index_keys`: the keys that a row has in an index, as servers make them; `conflict`: the row that has one of them already.

    {u: 1}                            {u: 7} -> 7                     {} -> null, which only one row may have
    {u: 1}, sparse                    {} -> none
    {m.z: 1}                          {m: [{z: 1}, {z: 1}, {}]} -> 1, null
    {w: 1}, of those with on > 0      {w: 7, on: 0} -> none

At most one path of an index leads through an array, and none through an array in an array. The values are numbers, texts and nulls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple, TypeAlias

from tests.simulation.source.row_keys import in_order

Key: TypeAlias = tuple[Any, ...]
Spec: TypeAlias = Mapping[str, Any]

_MISSING = object()
_UNDEFINED = object()
"""The value of an empty array, which is not null."""


class Conflict(NamedTuple):
    """`by`: the `_id` of the row that has the key."""

    key: Key
    by: Any


def is_unique(spec: Spec) -> bool:
    return bool(spec.get("unique"))


def conflict(spec: Spec, rows: Mapping[Any, Mapping[str, Any]], id: Any, row: Mapping[str, Any]) -> Conflict | None:
    """None: the row may be there with this `_id`. If several keys are taken, the lowest."""
    keys = index_keys(spec, row)
    if not keys:
        return None
    found = [(key, by) for by, other in rows.items() if by != id for key in keys & index_keys(spec, other)]
    return Conflict(*min(found, key=lambda each: _place(each[0]))) if found else None


def duplicate_in(spec: Spec, rows: Mapping[Any, Mapping[str, Any]]) -> Key | None:
    """The lowest key that several rows have."""
    seen = set[Key]()
    twice = set[Key]()
    for row in rows.values():
        keys = index_keys(spec, row)
        twice |= keys & seen
        seen |= keys
    return min(twice, key=_place, default=None)


def key_value(spec: Spec, key: Key) -> dict[str, Any]:
    """As an error tells it."""
    return {path: None if part is _UNDEFINED else part for path, part in zip(spec["key"], key, strict=True)}


def index_keys(spec: Spec, row: Mapping[str, Any]) -> set[Key]:
    if not _covers(spec.get("partialFilterExpression", {}), row):
        return set()
    columns = [list(_values(row, path.split("."))) for path in spec["key"]]
    keys = set(product(*columns))
    if spec.get("sparse"):
        keys = {key for key in keys if any(part is not _MISSING for part in key)}
    return {tuple(None if part is _MISSING else part for part in key) for key in keys}


def _covers(conditions: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    for path, condition in conditions.items():
        [found] = _values(row, path.split("."))
        match condition:
            case {"$exists": True}:
                holds = found is not _MISSING
            case {"$gt": bound}:
                holds = isinstance(found, int) and found > bound
            case _:
                holds = found is not _MISSING and found == condition
        if not holds:
            return False
    return True


def _values(value: Any, path: list[str]) -> Iterator[Any]:
    """What is at the end of the path."""
    if isinstance(value, list):
        yield from _values_in(value, path)
    elif not path:
        yield value
    elif isinstance(value, Mapping) and path[0] in value:
        yield from _values(value[path[0]], path[1:])
    else:
        yield _MISSING


def _values_in(array: list[Any], path: list[str]) -> Iterator[Any]:
    if not array:
        yield _MISSING if path else _UNDEFINED
    for element in array:
        assert not isinstance(element, list), "the model knows no array in an array"
        yield from _values(element, path)


def _place(key: Key) -> list[Any]:
    return [(0, 0) if part is _UNDEFINED else in_order(part) for part in key]
