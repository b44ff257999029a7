"""`pipeline`: an update event as an aggregation pipeline, which can address any field and truncate any array. Pure.

A worked example. `arr` was truncated to two elements and `arr.1.b` was set, so

    $replaceWith: $mergeObjects of $$ROOT and an object with "arr":
        when it is an array:    the first element of $slice [arr, 2], then [its second with "b" set], then the rest
        otherwise:              unchanged

**Names.** A path in an expression cannot name a field `a.b`, `$a` or ``. `$setField` can, but only from 5.0 on; `$mergeObjects`,
`$objectToArray` and `$arrayToObject` can on all servers.

**Shape.** A pipeline leaves a part unchanged if it does not have the shape that the path needs. `fits` is the condition that all parts
have it. It is added to the filter of the update, so that a document of another shape counts as missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from bson.raw_bson import RawBSONDocument

from changefeed.errors import InvariantError

Expression: TypeAlias = Any
"""An aggregation expression: any BSON value."""
DocumentPath: TypeAlias = tuple[str | int, ...]
"""Names of fields, and indexes of arrays. A number without a disambiguation is `Unclear`."""

_Paths: TypeAlias = Mapping[str, list[str | int]]

_ALL_THE_REST = 2**31 - 1


class Unclear(str):
    """A number in a path: an array index or a field name, depending on the document."""

    __slots__ = ()


class TranslatedUpdate(NamedTuple):
    """`operation` is an operator document or a pipeline; `fits` is the condition on the document, if a pipeline needs one."""

    operation: Mapping[str, Any] | list[dict[str, Any]]
    fits: Expression | None = None
    upserts: bool = False
    """Whether the update creates a missing document, as updates in a user's `applyOps` do."""


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
    """The changes of one embedded document or array."""

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
        """Whether the path may be created: servers before 5.0 report that `a.b` was set also when this created `a`."""
        return not self.array and any(
            child.creates if isinstance(child, _Node) else isinstance(child, _Set) for child in self.children.values()
        )

    def key(self, part: str | int) -> str | int | None:
        """The key of a part of a path. Another path may decide whether an unclear number is an index. None if the part contradicts the others."""
        if isinstance(part, int):
            return part if self.become_array() else None
        if not isinstance(part, Unclear):
            return part if not self.array else None
        return int(part) if self.array else part

    def become_array(self) -> bool:
        """Makes unclear numbers indexes. False if another path needs a document here."""
        if any(type(name) is str for name in self.children):
            return False
        self.children = {int(name): child for name, child in self.children.items()}
        return True

    def truncate(self, size: int) -> bool:
        if not self.become_array() or any(int(index) >= size for index in self.children):
            return False
        self.size = min(size, self.size if self.size is not None else size)
        return True

    def elements(self) -> list[tuple[int, _Node | _Set | _Remove]]:
        return sorted(((int(name), child) for name, child in self.children.items()), key=lambda element: element[0])


def _edits(update: RawBSONDocument) -> Iterator[tuple[DocumentPath, _Edit]]:
    """The edits of an update, removals first, as the source applies them: a field that is set again moves to the end."""
    paths: _Paths = update.get("disambiguatedPaths") or {}
    for name in update.get("removedFields") or ():
        yield _path(name, paths), _Remove()
    for array in update.get("truncatedArrays") or ():
        yield _path(array["field"], paths), _Truncate(int(array["newSize"]))
    for name, value in (update.get("updatedFields") or {}).items():
        yield _path(name, paths), _Set(value)


def _path(name: str, paths: _Paths) -> DocumentPath:
    if name in paths:
        return tuple(part if isinstance(part, str) else int(part) for part in paths[name])
    return tuple(Unclear(part) if at and _index(part) else part for at, part in enumerate(name.split(".")))


def _index(part: str) -> bool:
    """Whether the server reads the part as an index: `01` is a name."""
    return part.isascii() and part.isdigit() and (part == "0" or part[0] != "0")


def pipeline(update: RawBSONDocument) -> TranslatedUpdate:
    """Translates an `updateDescription`. A field that is removed and set again is checked as a field that is set."""
    shape, edits = _Node(), list(_edits(update))
    set_again = {path for path, edit in edits if isinstance(edit, _Set)}
    for path, edit in edits:
        if isinstance(edit, _Remove) and path in set_again:
            continue
        if not _insert(shape, path, edit):
            break
    conditions = _conditions(shape, "$$ROOT")
    return TranslatedUpdate(operation=stages([update]), fits={"$and": conditions} if conditions else None)


def stages(updates: Iterable[RawBSONDocument]) -> list[dict[str, Any]]:
    """Stages for several updates of one document, in order. A server accepts at most a thousand stages, so each stage holds as many edits
    as possible: a new one starts when a path leads through a path that the stage sets, or sets a path that the stage removes.
    """
    roots: list[_Node] = []
    for path, edit in chain.from_iterable(map(_edits, updates)):
        if not roots or not _insert(roots[-1], path, edit):
            roots.append(_Node())
            if not _insert(roots[-1], path, edit):
                raise InvariantError(f"the path {path} of an update event does not fit into an empty stage")
    return [{"$replaceWith": _fields(root, "$$ROOT")} for root in roots]


def _insert(node: _Node, path: DocumentPath, edit: _Edit) -> bool:
    """Adds an edit to a stage. False if the stage already has a contradicting edit of this path."""
    *parents, leaf = path
    for part in parents if not isinstance(edit, _Truncate) else path:
        if (key := node.key(part)) is None:
            return False
        child = node.children.setdefault(key, _Node())
        if not isinstance(child, _Node):
            return False
        node = child
    if isinstance(edit, _Truncate):
        return node.truncate(edit.size)
    key = node.key(leaf)
    if key is None or (key in node.children and type(node.children[key]) is not type(edit)):
        return False
    node.children[key] = edit
    return True


def _changed(node: _Node, current: Expression) -> Expression:
    """`current` with the node's changes, or unchanged if it does not have the shape for them."""
    if node.creates:
        current = _if(_is_missing(current), {"$literal": {}}, current)
    edited = _elements(node, "$$v") if node.array else _fields(node, "$$v")
    if node.unclear:
        edited = _if(_is_array("$$v"), _elements(node, "$$v"), _if(_is_document("$$v"), edited, "$$v"))
    else:
        edited = _if(_is_array("$$v") if node.array else _is_document("$$v"), edited, "$$v")
    return {"$let": {"vars": {"v": current}, "in": edited}}


def _fields(node: _Node, document: str) -> Expression:
    """The document without the removed fields, merged with each set field in order: an existing field keeps its place."""
    removed = [str(name) for name, child in node.children.items() if isinstance(child, _Remove)]
    layers: list[Expression] = [_without(removed, document) if removed else document]
    constants: dict[str, Any] = {}
    for name, child in node.children.items():
        match child:
            case _Set(value):
                if not constants:
                    layers.append({"$literal": constants})
                constants[str(name)] = value
            case _Node():
                layers.append(_object(str(name), _changed(child, _field(document, str(name)))))
                constants = {}
    return {"$mergeObjects": layers}


def _without(names: list[str], document: str) -> Expression:
    kept = {"$not": [{"$in": ["$$this.k", {"$literal": names}]}]}
    return {"$arrayToObject": {"$filter": {"input": {"$objectToArray": document}, "cond": kept}}}


def _field(document: str, name: str) -> Expression:
    """The value of a field of a document variable. For most names it is a plain path."""
    if _plain(name):
        return f"{document}.{name}"
    named = {"$filter": {"input": {"$objectToArray": document}, "cond": {"$eq": ["$$this.k", {"$literal": name}]}}}
    return {"$arrayElemAt": [{"$map": {"input": named, "in": "$$this.v"}}, 0]}


def _object(name: str, value: Expression) -> Expression:
    """A document with this one field; empty when the value is missing."""
    if _plain(name):
        return {name: value}
    there = {"$filter": {"input": [{"k": {"$literal": name}, "v": value}], "cond": {"$not": [_is_missing("$$this.v")]}}}
    return {"$arrayToObject": there}


def _plain(name: str) -> bool:
    return name != "" and "." not in name and "$" not in name


def _elements(node: _Node, array: str) -> Expression:
    """The array with its changed elements: its slices and the new elements, concatenated, padded with null where it is too short."""
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


def _conditions(node: _Node, current: str) -> list[Expression]:
    """The conditions on the embedded documents and arrays of a variable's value."""
    conditions: list[Expression] = []
    for name, child in () if node.unclear else node.children.items():
        if not isinstance(child, _Node):
            continue
        if node.array:
            part = _if(_is_array(current), {"$arrayElemAt": [current, int(name)]}, "$$REMOVE")
        else:
            part = _if(_is_document(current), _field(current, str(name)), "$$REMOVE")
        shapely = {"$and": [_shape(child, "$$v"), *_conditions(child, "$$v")]}
        conditions.append({"$let": {"vars": {"v": part}, "in": shapely}})
    return conditions


def _shape(node: _Node, current: str) -> Expression:
    shapes = [_is_array(current)] if node.array or node.unclear else []
    if not node.array:
        shapes.append(_is_document(current))
    if node.creates:
        shapes.append(_is_missing(current))
    return {"$or": shapes}


def _is_array(value: Expression) -> Expression:
    return {"$isArray": [value]}


def _is_document(value: Expression) -> Expression:
    return {"$eq": [{"$type": value}, "object"]}


def _is_missing(value: Expression) -> Expression:
    return {"$eq": [{"$type": value}, "missing"]}


def _if(condition: Expression, then: Expression, otherwise: Expression) -> Expression:
    return {"$cond": [condition, then, otherwise]}
