"""`translate`: the update that makes of the document before an update event the document after it. Pure.

Most events become a classic operator document, which is the cheapest. An aggregation pipeline takes what that cannot say:

    updateDescription                                              becomes
    updatedFields {status: "paid", "lines.3.sku": 7}               {$set: {...}}
    removedFields ["note"]                                         {$unset: {note: ""}}
    a field named "a.b", "$x" or ""                                pipeline, with $setField
    "a.0" where disambiguatedPaths says a is an object             pipeline
    truncatedArrays, alone or with `arr.1.b` in the same array     pipeline, with $slice and $concatArrays
    updatedFields {z: 1, a: 2}, not in the order $set gives        pipeline
    paths of which one leads through another                       pipeline, one stage after the other
    nothing changed                                                None: there is nothing to do

**Order of fields.** An event lists new fields in the order in which the source appended them. `$set` appends in lexicographic
order (5.0+: numeric names by number) whatever the order given, so it is used only where that is the order of the event: always when the
source's user wrote `$set`. A pipeline appends in the order given. Fields that were there keep their place either way, so the target
becomes equal to the source byte by byte. Below 5.0 a target cannot run the pipelines made of `$setField`; it refuses the row.

**Shape.** A pipeline leaves a part alone whose shape is not what the path needs. `fits` is the condition that all have it: a
writer that does not replay adds it to its filter, so that a document of another shape counts as one that is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from changefeed.errors import InvariantError

Expression: TypeAlias = Any
"""An aggregation expression: whatever BSON can hold."""
Path: TypeAlias = tuple[str | int, ...]
"""Names of fields, and indexes of arrays. A number that no disambiguation explains is `Unclear`."""

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)
_NAMES: CodecOptions[dict[str, Any]] = CodecOptions(dict, datetime_conversion=DatetimeConversion.DATETIME_MS)
_UPDATED_FIELDS = b"\x03updatedFields\x00"
_FIELDS_AT = 4 + len(_UPDATED_FIELDS)
_NO_REMOVED, _NO_TRUNCATED = b"\x04removedFields\x00\x05\0\0\0\0", b"\x04truncatedArrays\x00\x05\0\0\0\0"
_NO_PATHS = b"\x03disambiguatedPaths\x00\x05\0\0\0\0"
_NOTHING_ELSE = frozenset(
    {
        _NO_REMOVED + b"\0",
        _NO_REMOVED + _NO_TRUNCATED + b"\0",
        _NO_REMOVED + _NO_TRUNCATED + _NO_PATHS + b"\0",
    }
)
_ALL_THE_REST = 2**31 - 1
_EDITS_PER_STAGE = 8
"""Each field that is set nests the expression deeper; servers refuse documents more than 200 levels deep."""


class Unclear(str):
    """A number in a path: an array's index or a field's name, as the document has it."""

    __slots__ = ()


class Update(NamedTuple):
    """`operation` is an operator document or a pipeline; `fits` a condition on the document, of a pipeline that needs one."""

    operation: Mapping[str, Any] | list[dict[str, Any]]
    fits: Expression | None = None


def translate(description: bytes, *, viable: bool = False) -> Update | None:
    """`viable` asks for the pipeline, which applies all that a document of another shape can take."""
    if not viable and (operators := _plain_sets(description)) is not None:
        return Update(operators)
    raw = RawBSONDocument(description, _RAW)
    updated: Mapping[str, Any] = raw.get("updatedFields") or {}
    removed: list[str] = raw.get("removedFields") or []
    truncated: list[RawBSONDocument] = raw.get("truncatedArrays") or []
    paths: Mapping[str, list[str | int]] = raw.get("disambiguatedPaths") or {}
    if not (updated or removed or truncated):
        return None
    if not (viable or truncated or paths) and _classic(list(updated), removed):
        return Update(operation=_operators(updated, removed))
    if not (viable or truncated or paths) and _plain((*updated, *removed)):
        return Update(operation=_stages(updated, removed))
    return _pipeline(_edits(updated, removed, truncated, paths))


def _plain_sets(description: bytes) -> RawBSONDocument | None:
    """What most events are, a few fields set and nothing else, without building a value of any of them."""
    if not description.startswith(_UPDATED_FIELDS, 4):
        return None
    size = int.from_bytes(description[_FIELDS_AT : _FIELDS_AT + 4], "little")
    end = _FIELDS_AT + size
    if description[end:] not in _NOTHING_ELSE:
        return None
    updated = description[_FIELDS_AT:end]
    if not _plainly_classic(tuple(bson.decode(updated, _NAMES))):
        return None
    return RawBSONDocument(b"".join(((size + 11).to_bytes(4, "little"), b"\x03$set\x00", updated, b"\x00")), _RAW)


@lru_cache(maxsize=4096)
def _plainly_classic(names: tuple[str, ...]) -> bool:
    """Updates of one program name the same few fields again and again."""
    return bool(names) and _classic(list(names), [])


def _classic(updated: list[str], removed: list[str]) -> bool:
    """Whether `$set` and `$unset` say just this, in this order of new fields."""
    names = (*updated, *removed)
    return all(map(_addressable, names)) and _in_order(updated) and not _overlapping(names)


def _addressable(name: str) -> bool:
    return name != "" and "$" not in name and name[0] != "." and name[-1] != "." and ".." not in name


def _in_order(names: list[str]) -> bool:
    """Within each parent, in an order that every server version takes for lexicographic."""
    last: dict[str, str] = {}
    for name in names:
        parent, _, leaf = name.rpartition(".")
        before = last.get(parent)
        if before is not None and not _before(before, leaf):
            return False
        last[parent] = leaf
    return True


def _before(one: str, other: str) -> bool:
    if one.isdigit() and other.isdigit():
        return int(one) < int(other)
    return one.encode() < other.encode()


def _overlapping(names: Iterable[str]) -> bool:
    """Whether one leads through another; `$set` and `$unset` refuse that."""
    ordered = sorted(names, key=lambda name: name.split("."))
    return any(after == name or after.startswith(name + ".") for name, after in pairwise(ordered))


def _plain(names: tuple[str, ...]) -> bool:
    return all(name and "." not in name and "$" not in name for name in names)


def _operators(updated: Mapping[str, Any], removed: list[str]) -> dict[str, Any]:
    operators: dict[str, Any] = {}
    if updated:
        operators["$set"] = updated
    if removed:
        operators["$unset"] = dict.fromkeys(removed, "")
    return operators


def _stages(updated: Mapping[str, Any], removed: list[str]) -> list[dict[str, Any]]:
    stages: list[dict[str, Any]] = []
    if removed:
        stages.append({"$unset": removed})
    if updated:
        stages.append({"$set": {name: {"$literal": value} for name, value in updated.items()}})
    return stages


@dataclass(frozen=True, slots=True)
class _Set:
    value: Any


@dataclass(frozen=True, slots=True)
class _Remove:
    pass


@dataclass(frozen=True, slots=True)
class _Truncate:
    size: int


_Edit: TypeAlias = _Set | _Remove | _Truncate


@dataclass(slots=True)
class _Node:
    """What happens to one embedded document or array."""

    size: int | None = None
    children: dict[str | int, _Node | _Set | _Remove] = field(default_factory=dict)

    @property
    def array(self) -> bool:
        return self.size is not None or any(isinstance(name, int) for name in self.children)

    @property
    def unclear(self) -> bool:
        return not self.array and bool(self.children) and all(isinstance(name, Unclear) for name in self.children)

    @property
    def creates(self) -> bool:
        """Servers before 5.0 say `a.b` was set also where it made `a`."""
        return not self.array and any(
            child.creates if isinstance(child, _Node) else isinstance(child, _Set) for child in self.children.values()
        )

    def key(self, part: str | int) -> str | int:
        """One path may be clear of what another one leaves unclear: both lead into the same array."""
        if isinstance(part, int):
            self.become_array()
        return int(part) if isinstance(part, Unclear) and self.array else part

    def become_array(self) -> None:
        self.children = {
            int(name) if isinstance(name, Unclear) else name: child for name, child in self.children.items()
        }

    def elements(self) -> list[tuple[int, _Node | _Set | _Remove]]:
        return sorted(((int(name), child) for name, child in self.children.items()), key=lambda element: element[0])


def _edits(
    updated: Mapping[str, Any],
    removed: list[str],
    truncated: list[RawBSONDocument],
    paths: Mapping[str, list[str | int]],
) -> Iterator[tuple[Path, _Edit]]:
    """Removals first, as the source applies them: a field that is set again goes to the end."""
    for name in removed:
        yield _path(name, paths), _Remove()
    for array in truncated:
        yield _path(array["field"], paths), _Truncate(int(array["newSize"]))
    for name, value in updated.items():
        yield _path(name, paths), _Set(value)


def _path(name: str, paths: Mapping[str, list[str | int]]) -> Path:
    if name in paths:
        return tuple(part if isinstance(part, str) else int(part) for part in paths[name])
    return tuple(Unclear(part) if at and _index(part) else part for at, part in enumerate(name.split(".")))


def _index(part: str) -> bool:
    """As the server reads one: `01` is a name."""
    return part.isascii() and part.isdigit() and (part == "0" or part[0] != "0")


def _pipeline(edits: Iterable[tuple[Path, _Edit]]) -> Update:
    """A new stage begins when one is deep enough, and when a path leads through one that the stage already sets."""
    shape, shapely = _Node(), True
    roots: list[_Node] = []
    for number, (path, edit) in enumerate(edits):
        shapely = shapely and _insert(shape, path, edit)
        if number % _EDITS_PER_STAGE == 0 or not _insert(roots[-1], path, edit):
            roots.append(_Node())
            if not _insert(roots[-1], path, edit):
                raise InvariantError(f"the path {path} of an update event does not fit into an empty stage")
    conditions = list(_conditions(shape, "$$ROOT", root=True))
    stages = [{"$replaceWith": _fields(root, "$$ROOT")} for root in roots]
    return Update(operation=stages, fits={"$and": conditions} if conditions else None)


def _insert(node: _Node, path: Path, edit: _Edit) -> bool:
    """False when the stage already says something else of this path."""
    *parents, leaf = path
    for part in parents if not isinstance(edit, _Truncate) else path:
        key = node.key(part)
        child = node.children.setdefault(key, _Node())
        if not isinstance(child, _Node):
            return False
        node = child
    if isinstance(edit, _Truncate):
        node.become_array()
        node.size = edit.size
        return True
    key = node.key(leaf)
    if key in node.children:
        return False
    node.children[key] = edit
    return True


def _changed(node: _Node, current: Expression) -> Expression:
    """`current` with the node's changes, or as it is where it has not the shape for them."""
    edited = _elements(node, "$$v") if node.array else _fields(node, "$$v")
    if node.unclear:
        edited = _if(_is_array("$$v"), _elements(node, "$$v"), _if(_is_document("$$v"), edited, "$$v"))
    else:
        edited = _if(_is_array("$$v") if node.array else _is_document("$$v"), edited, "$$v")
    if node.creates:
        edited = _if(_is_missing("$$v"), _fields(node, {"$literal": {}}), edited)
    return {"$let": {"vars": {"v": current}, "in": edited}}


def _fields(node: _Node, document: Expression) -> Expression:
    edited: Expression = document
    for name, child in node.children.items():
        field_name = {"$literal": str(name)}
        match child:
            case _Set(value):
                value = {"$literal": value}
            case _Remove():
                value = "$$REMOVE"
            case _Node():
                value = _changed(child, {"$getField": {"field": field_name, "input": document}})
        edited = {"$setField": {"field": field_name, "input": edited, "value": value}}
    return edited


def _elements(node: _Node, array: str) -> Expression:
    """The array cut at each changed element and put together again, padded with null where it is too short."""
    base: Expression = array
    if node.size is not None:
        base = {"$slice": [array, node.size]} if node.size else {"$literal": []}
    pieces: list[Expression] = []
    begin = 0
    for index, child in node.elements():
        if index > begin:
            pieces += _padded("$$a", begin, index)
        pieces.append([_element(child, {"$arrayElemAt": ["$$a", index]})])
        begin = index + 1
    if not pieces:
        return base
    pieces.append({"$slice": ["$$a", begin, _ALL_THE_REST]})
    return {"$let": {"vars": {"a": base}, "in": {"$concatArrays": pieces}}}


def _element(child: _Node | _Set | _Remove, current: Expression) -> Expression:
    match child:
        case _Set(value):
            return {"$literal": value}
        case _Remove():
            return {"$literal": None}
        case _Node():
            return _changed(child, current)


def _padded(array: str, begin: int, end: int) -> list[Expression]:
    missing = {"$range": [{"$max": [begin, {"$size": array}]}, end]}
    return [
        {"$slice": [array, begin, end - begin]},
        {"$map": {"input": missing, "in": {"$literal": None}}},
    ]


def _conditions(node: _Node, current: Expression, *, root: bool = False) -> Iterator[Expression]:
    shapes = [_is_array(current)] if node.array or node.unclear else []
    if not node.array:
        shapes.append(_is_document(current))
    if node.creates:
        shapes.append(_is_missing(current))
    if not root:
        yield {"$or": shapes}
    for name, child in () if node.unclear else node.children.items():
        if not isinstance(child, _Node):
            continue
        if node.array:
            part: Expression = _if(_is_array(current), {"$arrayElemAt": [current, int(name)]}, None)
        else:
            part = {"$getField": {"field": {"$literal": str(name)}, "input": current}}
        yield from _conditions(child, part)


def _is_array(value: Expression) -> Expression:
    return {"$isArray": [value]}


def _is_document(value: Expression) -> Expression:
    return {"$eq": [{"$type": value}, "object"]}


def _is_missing(value: Expression) -> Expression:
    return {"$eq": [{"$type": value}, "missing"]}


def _if(condition: Expression, then: Expression, otherwise: Expression) -> Expression:
    return {"$cond": [condition, then, otherwise]}
