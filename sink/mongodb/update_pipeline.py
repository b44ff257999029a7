"""`pipeline`: an update event as an aggregation pipeline, which can name any field and cut any array. Pure.

A worked example. `arr` was cut to two elements and `arr.1.b` was set, so

    $replaceWith: $setField "arr" of $$ROOT to
        when it is an array:    the first element of $slice [arr, 2], then [its second with "b" set], then the rest
        otherwise:              what it is

**Shape.** A pipeline leaves a part alone whose shape is not what the path needs. `fits` is the condition that all have it: a
writer that does not replay adds it to its filter, so that a document of another shape counts as one that is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from bson.raw_bson import RawBSONDocument

from changefeed.errors import InvariantError

Expression: TypeAlias = Any
"""An aggregation expression: whatever BSON can hold."""
Path: TypeAlias = tuple[str | int, ...]
"""Names of fields, and indexes of arrays. A number that no disambiguation explains is `Unclear`."""

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


def pipeline(
    updated: Mapping[str, Any],
    removed: list[str],
    truncated: list[RawBSONDocument],
    paths: Mapping[str, list[str | int]],
) -> Update:
    """From the parts of an `updateDescription`. A new stage begins when one is deep enough, and when a path leads through one that the stage already sets."""
    shape, shapely = _Node(), True
    roots: list[_Node] = []
    for number, (path, edit) in enumerate(_edits(updated, removed, truncated, paths)):
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
