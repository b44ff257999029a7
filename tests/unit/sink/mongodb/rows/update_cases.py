"""Random documents and random update events, each with the source's document after the event."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import bson
from hypothesis import strategies as st

Document: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str | int, ...]
Names: TypeAlias = st.SearchStrategy[str]
Values: TypeAlias = st.SearchStrategy[Any]

NAMES = ("a", "b", "c", "z", "0", "1", "10", "a.b", "$x", "x$", "", "x.", ".0", "é")
_SCALARS = st.one_of(
    st.integers(-5, 5),
    st.sampled_from(["$a", "$$ROOT", "text", ""]),
    st.none(),
    st.booleans(),
    st.floats(0, 1, width=16),
)


@dataclass(frozen=True)
class Case:
    before: Document
    after: Document
    description: bytes


@dataclass
class _Edits:
    """No path is a prefix of another; removals and truncations come before the fields that are set."""

    sets: dict[Path, Any] = field(default_factory=dict)
    removed: list[Path] = field(default_factory=list)
    truncated: dict[Path, int] = field(default_factory=dict)

    def free(self, path: Path, *, cut: bool = False) -> bool:
        """Paths with the same dotted name are one key of the event, so such a path is not free either."""
        for other in [*self.sets, *self.removed, *([*self.truncated] if cut else [])]:
            if path[: len(other)] == other or other[: len(path)] == path or _name(other) == _name(path):
                return False
        return all(self._survives(path, array, size) for array, size in self.truncated.items())

    @staticmethod
    def _survives(path: Path, array: Path, size: int) -> bool:
        if array[: len(path)] == path or _name(array) == _name(path):
            return False
        return path[: len(array)] != array or len(path) == len(array) + 1 or int(path[len(array)]) < size

    def apply(self, document: Document) -> None:
        for path in self.removed:
            del _at(document, path[:-1])[path[-1]]
        for path, size in self.truncated.items():
            del _at(document, path)[size:]
        for path, value in self.sets.items():
            _put(_at(document, path[:-1]), path[-1], copy.deepcopy(value))


@cache
def _named(names: tuple[str, ...]) -> tuple[Names, Values]:
    named = st.sampled_from(names)
    values = st.recursive(
        _SCALARS,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(named, inner, max_size=4)),
        max_leaves=8,
    )
    return named, values


@st.composite
def cases(draw: st.DrawFn, names: tuple[str, ...] = NAMES) -> Case:
    named, values = _named(names)
    before = {"_id": 1, **draw(st.dictionaries(named, values, min_size=1, max_size=6))}
    edits = _Edits()
    for _ in range(draw(st.integers(1, 8))):
        path, holder = _descend(draw, before)
        if isinstance(holder, list):
            _edit_array(draw, values, path, holder, edits)
        else:
            _edit_document(draw, named, values, path, holder, edits)
    if not (edits.sets or edits.removed or edits.truncated):
        edits.sets[("new",)] = 1
    after = copy.deepcopy(before)
    edits.apply(after)
    return Case(before, after, describe(edits.sets, edits.removed, edits.truncated))


def describe(sets: dict[Path, Any], removed: list[Path], truncated: dict[Path, int]) -> bytes:
    """The description in a change stream; only ambiguous paths are disambiguated."""
    paths = [*sets, *removed, *truncated]
    unclear = {_name(path): list(path) for path in paths if any(isinstance(part, str) and _odd(part) for part in path)}
    return bson.encode(
        {
            "updatedFields": {_name(path): value for path, value in sets.items()},
            "removedFields": [_name(path) for path in removed],
            "truncatedArrays": [{"field": _name(path), "newSize": size} for path, size in truncated.items()],
            "disambiguatedPaths": unclear,
        }
    )


def _odd(part: str) -> bool:
    return "." in part or part.isdigit()


def _name(path: Path) -> str:
    return ".".join(map(str, path))


def _descend(draw: st.DrawFn, document: Document) -> tuple[Path, Any]:
    path: Path = ()
    holder: Any = document
    for _ in range(draw(st.integers(0, 4))):
        parts: list[tuple[Any, Any]] = list(enumerate(holder)) if isinstance(holder, list) else list(holder.items())
        inner = [(part, value) for part, value in parts if isinstance(value, (dict, list)) and part != "_id"]
        if not inner:
            break
        part, holder = draw(st.sampled_from(inner))
        path = (*path, part)
    return path, holder


def _edit_document(draw: st.DrawFn, named: Names, values: Values, path: Path, holder: Document, edits: _Edits) -> None:
    target = (*path, draw(named))
    if not edits.free(target):
        return
    if target[-1] in holder and draw(st.booleans()):
        edits.removed.append(target)
    else:
        edits.sets[target] = draw(values)


def _edit_array(draw: st.DrawFn, values: Values, path: Path, holder: list[Any], edits: _Edits) -> None:
    if draw(st.booleans()) and holder:
        if edits.free(path, cut=True):
            edits.truncated[path] = draw(st.integers(0, len(holder) - 1))
        return
    size = edits.truncated.get(path, len(holder))
    target = (*path, draw(st.integers(0, size + 2)))
    if edits.free(target):
        edits.sets[target] = draw(values)


def _at(document: Document, path: Path) -> Any:
    found: Any = document
    for part in path:
        found = found[part]
    return found


def _put(holder: Any, part: str | int, value: Any) -> None:
    if isinstance(holder, list):
        index = int(part)
        holder.extend([None] * (index + 1 - len(holder)))
        holder[index] = value
    else:
        holder[part] = value
