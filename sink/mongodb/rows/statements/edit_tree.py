"""`EditTree`: the edits of an update description as a tree of the documents and arrays that they lead through. Pure.

    removedFields [a.x]   truncatedArrays [{field: arr, newSize: 2}]   updatedFields {arr.1.b: 9}

    a: {x: remove}        arr: (2 elements) {1: {b: set 9}}

A path may be long, so nothing here calls itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from bson.raw_bson import RawBSONDocument

from changefeed.errors import InvariantError

DocumentPath: TypeAlias = tuple[str | int, ...]
"""Names of fields, and indexes of arrays. A number without a disambiguation is `Unclear`."""
_Paths: TypeAlias = Mapping[str, list[str | int]]
_T = TypeVar("_T")


class Unclear(str):
    """A number in a path: an array index or a field name, depending on the document."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SetField:
    value: Any


@dataclass(frozen=True, slots=True)
class RemoveField:
    pass


@dataclass(frozen=True, slots=True)
class _Truncate:
    size: int


Edit: TypeAlias = SetField | RemoveField | _Truncate


@dataclass(slots=True)
class EditNode:
    """The changes of one embedded document or array."""

    size: int | None = None
    children: dict[str | int, EditNode | SetField | RemoveField] = field(default_factory=dict)
    creates: bool = False
    """Whether the path may be created: servers before 5.0 report that `a.b` was set also when this created `a`."""

    @property
    def array(self) -> bool:
        return self.size is not None or any(isinstance(name, int) for name in self.children)

    @property
    def unclear(self) -> bool:
        return not self.array and bool(self.children) and all(isinstance(name, Unclear) for name in self.children)

    def nodes(self) -> Iterator[tuple[str | int, EditNode]]:
        return ((name, child) for name, child in self.children.items() if isinstance(child, EditNode))

    def insert(self, path: DocumentPath, edit: Edit) -> bool:
        """Adds an edit to the tree. False if the tree already has a contradicting edit of this path."""
        node = self
        for part in path[:-1] if not isinstance(edit, _Truncate) else path:
            if (key := node.key_of(part)) is None:
                return False
            child = node.children.setdefault(key, EditNode())
            if not isinstance(child, EditNode):
                return False
            node = child
        if isinstance(edit, _Truncate):
            return node.truncate(edit.size)
        key = node.key_of(path[-1])
        if key is None or (key in node.children and type(node.children[key]) is not type(edit)):
            return False
        node.children[key] = edit
        return True

    def key_of(self, part: str | int) -> str | int | None:
        """The key of a part of a path. Another path may decide whether an unclear number is an index. None if the part contradicts the others."""
        if isinstance(part, int):
            return part if self._become_array() else None
        if not isinstance(part, Unclear):
            return part if not self.array else None
        return int(part) if self.array else part

    def _become_array(self) -> bool:
        """Makes unclear numbers indexes. False if another path needs a document here."""
        if any(type(name) is str for name in self.children):
            return False
        self.children = {int(name): child for name, child in self.children.items()}
        return True

    def truncate(self, size: int) -> bool:
        if not self._become_array() or any(int(index) >= size for index in self.children):
            return False
        self.size = min(size, self.size if self.size is not None else size)
        return True

    def completed(self) -> EditNode:
        """The tree, when all of its edits are inserted."""
        nodes = [self]
        for node in nodes:
            nodes += (child for _, child in node.nodes())
        for node in reversed(nodes):
            made = (
                child.creates if isinstance(child, EditNode) else isinstance(child, SetField)
                for child in node.children.values()
            )
            node.creates = not node.array and any(made)
        return self


def in_order(children: Mapping[str | int, _T]) -> list[tuple[int, _T]]:
    """The children of an array."""
    return sorted(((int(name), child) for name, child in children.items()), key=lambda element: element[0])


def edits_of(update: RawBSONDocument, values: Iterable[tuple[str, Any]]) -> Iterator[tuple[DocumentPath, Edit]]:
    """The edits of an update, removals first, as the source applies them: a field that is set again moves to the end.

    `values`: the updated fields.
    """
    paths: _Paths = update.get("disambiguatedPaths") or {}
    for name in update.get("removedFields") or ():
        yield _path(name, paths), RemoveField()
    for array in update.get("truncatedArrays") or ():
        yield _path(array["field"], paths), _Truncate(int(array["newSize"]))
    for name, value in values:
        yield _path(name, paths), SetField(value)


def _path(name: str, paths: _Paths) -> DocumentPath:
    if name in paths:
        return tuple(part if isinstance(part, str) else int(part) for part in paths[name])
    return tuple(Unclear(part) if at and _index(part) else part for at, part in enumerate(name.split(".")))


def _index(part: str) -> bool:
    """Whether the server reads the part as an index: `01` is a name."""
    return part.isascii() and part.isdigit() and (part == "0" or part[0] != "0")


def shape_of(edits: Iterable[tuple[DocumentPath, Edit]]) -> EditNode:
    """What a document must look like. A field that is removed and set again is checked as a field that is set."""
    edits = list(edits)
    shape, set_again = EditNode(), {path for path, edit in edits if isinstance(edit, SetField)}
    for path, edit in edits:
        if isinstance(edit, RemoveField) and path in set_again:
            continue
        if not shape.insert(path, edit):
            break
    return shape.completed()


def stages_of(edits: Iterable[tuple[DocumentPath, Edit]]) -> list[EditNode]:
    """Trees to be applied in order, each with as many edits as possible: a new one begins when a path leads through a path that the tree sets, or
    sets a path that it removes.
    """
    roots: list[EditNode] = []
    for path, edit in edits:
        if not roots or not roots[-1].insert(path, edit):
            roots.append(EditNode())
            if not roots[-1].insert(path, edit):
                raise InvariantError(f"the path {path} of an update event does not fit into an empty stage")
    return [root.completed() for root in roots]
