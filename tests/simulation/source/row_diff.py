"""`row_diff`: the `diff` of an update entry as servers write it; `described`: what a change stream shows for it.

{n: {x: 1, l: [1, 2, 3]}, f: 1}  ->  {n: {x: 2, l: [9, 2]}, g: 1}      {d: {f: false}, i: {g: 1}, sn: {u: {x: 2}, sl: {a: true, l: 2, u0: 9}}}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import bson

Fields = dict[str, Any]


def row_diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> Fields:
    changed = {name: value for name, value in after.items() if name in before and not _equal(before[name], value)}
    inside = {f"s{name}": _inside(before[name], value) for name, value in changed.items()}
    sections: Fields = {
        "d": dict.fromkeys([name for name in before if name not in after], False),
        "u": {name: value for name, value in changed.items() if not inside[f"s{name}"]},
        "i": {name: value for name, value in after.items() if name not in before},
    }
    return {name: fields for name, fields in {**sections, **inside}.items() if fields}


def _inside(before: Any, after: Any) -> Fields | None:
    """None: the value is written whole, since a diff would not be smaller."""
    diff: Fields | None = None
    if isinstance(before, dict) and isinstance(after, dict):
        diff = row_diff(before, after)
    elif isinstance(before, list) and isinstance(after, list):
        diff = _array_diff(before, after)
    return diff if diff is not None and _size(diff) < _size(after) else None


def _size(value: Any) -> int:
    return len(bson.encode({"": value}))


def _array_diff(before: Sequence[Any], after: Sequence[Any]) -> Fields:
    diff: Fields = {"a": True}
    if len(after) < len(before):
        diff["l"] = len(after)
    for number, value in enumerate(after):
        known = before[number] if number < len(before) else None
        if number >= len(before) or not _equal(known, value):
            inside = _inside(known, value)
            diff |= {f"s{number}": inside} if inside else {f"u{number}": value}
    return diff


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def described(diff: Mapping[str, Any]) -> Fields:
    updated: Fields = {}
    removed: list[str] = []
    truncated: list[Fields] = []
    _describe(diff, "", updated, removed, truncated)
    return {
        "updatedFields": dict(sorted(updated.items())),
        "removedFields": removed,
        "truncatedArrays": truncated,
    }


def _describe(
    diff: Mapping[str, Any], parent: str, updated: Fields, removed: list[str], truncated: list[Fields]
) -> None:
    if diff.get("a") is True:
        _describe_array(diff, parent, updated, removed, truncated)
        return
    removed += [f"{parent}{name}" for name in diff.get("d", ())]
    for section in ("u", "i"):
        updated |= {f"{parent}{name}": value for name, value in diff.get(section, {}).items()}
    for name, inside in diff.items():
        if name.startswith("s"):
            _describe(inside, f"{parent}{name[1:]}.", updated, removed, truncated)


def _describe_array(
    diff: Mapping[str, Any], parent: str, updated: Fields, removed: list[str], truncated: list[Fields]
) -> None:
    if "l" in diff:
        truncated.append({"field": parent.removesuffix("."), "newSize": diff["l"]})
    for name, value in diff.items():
        if name.startswith("u"):
            updated[f"{parent}{name[1:]}"] = value
        elif name.startswith("s"):
            _describe(value, f"{parent}{name[1:]}.", updated, removed, truncated)
