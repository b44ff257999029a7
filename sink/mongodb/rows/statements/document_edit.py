"""`edited`, `fits`: update descriptions applied to a document here, exactly as their pipeline does it at the target. Pure.

An update is a tree of edits (`EditNode`), by the documents and arrays that they lead through. The pipeline is made of the same tree.

    removedFields [a.x]   truncatedArrays [{field: arr, newSize: 2}]   updatedFields {arr.1.b: 9}

    a: {x: remove}        arr: (2 elements) {1: {b: set 9}}

No statement is needed, so no limit of one counts: neither the depth of a path nor the size of a command. What is not changed keeps its bytes, whatever
its type. Documents and arrays are opened only on the way to a change. A path may be long, so nothing here calls itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

from changefeed.bson_bytes import ARRAY, DOCUMENT, NULL, element, elements
from changefeed.documents.document import raw_document
from changefeed.errors import InvariantError

DocumentPath: TypeAlias = tuple[str | int, ...]
"""Names of fields, and indexes of arrays. A number without a disambiguation is `Unclear`."""
_Paths: TypeAlias = Mapping[str, list[str | int]]
_T = TypeVar("_T")
_UPDATED = b"updatedFields"
_NO_UPDATE = b"\x05\0\0\0\0"


class Unclear(str):
    """A number in a path: an array index or a field name, depending on the document."""

    __slots__ = ()


class RawValue(NamedTuple):
    """A value as it is."""

    kind: int
    base: bytes
    at: int
    end: int

    @property
    def content(self) -> bytes:
        return self.base[self.at : self.end]

    def named(self, name: bytes) -> bytes:
        """The element."""
        return element(self.kind, name, self.content)


@dataclass(frozen=True, slots=True)
class SetField:
    value: RawValue


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


def edits_of(update: bytes) -> Iterator[tuple[DocumentPath, Edit]]:
    """The edits of an update, removals first, as the source applies them: a field that is set again moves to the end."""
    described, places = raw_document(update), {name: at for name, _, at, _ in elements(update)}
    paths: _Paths = described.get("disambiguatedPaths") or {}
    for removed in described.get("removedFields") or ():
        yield _path(removed, paths), RemoveField()
    for array in described.get("truncatedArrays") or ():
        yield _path(array["field"], paths), _Truncate(int(array["newSize"]))
    if _UPDATED in places:
        for name, kind, at, end in elements(update, places[_UPDATED]):
            yield _path(name.decode(), paths), SetField(RawValue(kind, update, at, end))


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


_Name: TypeAlias = "bytes | int | tuple[bytes, int]"
"""Of a field, or an index. A later field of the same name has its place beside the name: no edit finds it."""


@dataclass(slots=True, eq=False)
class _Opened:
    """A document or an array of which something may change."""

    kind: int
    fields: dict[_Name, RawValue | _Opened] = field(default_factory=dict)
    size: int = 0

    @classmethod
    def of(cls, span: RawValue) -> _Opened:
        opened = cls(span.kind)
        fields = opened.fields
        for name, kind, at, end in elements(span.base, span.at):
            key: _Name = name
            if span.kind == ARRAY:
                key = len(fields)
            elif name in fields:
                key = name, len(fields)
            fields[key] = RawValue(kind, span.base, at, end)
        return opened

    def key(self, name: str | int) -> _Name:
        return int(name) if self.kind == ARRAY else str(name).encode()

    def inside(self, name: str | int) -> RawValue | _Opened | None:
        return self.fields.get(self.key(name))

    def opened(self, name: str | int) -> _Opened | None:
        """The document or array there; None if there is something else."""
        key = self.key(name)
        value = self.fields.get(key)
        if isinstance(value, RawValue) and value.kind in (DOCUMENT, ARRAY):
            value = self.fields[key] = _Opened.of(value)
        return value if isinstance(value, _Opened) else None


_NULL = RawValue(NULL, b"", 0, 0)


def edited(document: bytes, updates: Iterable[bytes]) -> bytes:
    """The document after the updates, in order. What does not fit it is left out."""
    root = _Opened.of(RawValue(DOCUMENT, document, 0, len(document)))
    for update in updates:
        for stage in stages_of(edits_of(update)):
            _edit(stage, root)
    return _bytes_of(root)


def changed(document: bytes | None, changes: Iterable[tuple[bytes | None, bytes | None]]) -> bytes | None:
    """After several changes, each a whole document or an update. None if there is no document that they could change."""
    updates: list[bytes] = []
    for whole, update in changes:
        if whole is not None:
            document, updates = whole, []
        else:
            updates.append(update or _NO_UPDATE)
    return None if document is None else edited(document, updates)


def fits(document: bytes, update: bytes) -> bool:
    """Whether all parts of an update fit the document."""
    root = _Opened.of(RawValue(DOCUMENT, document, 0, len(document)))
    pairs: list[tuple[EditNode, _Opened | None]] = [(shape_of(edits_of(update)), root)]
    for node, holder in pairs:
        for name, child in () if node.unclear else node.nodes():
            there = holder is not None and (holder.kind == ARRAY) is node.array
            value = holder.inside(name) if holder is not None and there else None
            inner = holder.opened(name) if holder is not None and there else None
            if not (child.creates if value is None else _shaped(child, inner)):
                return False
            pairs.append((child, inner))
    return True


def _shaped(node: EditNode, value: _Opened | None) -> bool:
    if value is None:
        return False
    return node.unclear or (value.kind == ARRAY) is node.array


def _edit(stage: EditNode, root: _Opened) -> None:
    pairs = [(stage, root)]
    for node, holder in pairs:
        if holder.kind == ARRAY:
            _edit_array(node, holder)
        else:
            _edit_document(node, holder)
        for name, child in node.nodes():
            inner = holder.opened(name)
            if inner is not None and _shaped(child, inner):
                pairs.append((child, inner))


def _edit_document(node: EditNode, document: _Opened) -> None:
    for name, child in node.children.items():
        if isinstance(child, RemoveField):
            document.fields.pop(document.key(name), None)
    for name, child in node.children.items():
        key = document.key(name)
        if isinstance(child, SetField):
            document.fields[key] = child.value
        elif isinstance(child, EditNode) and child.creates and key not in document.fields:
            document.fields[key] = _Opened(DOCUMENT)


def _edit_array(node: EditNode, array: _Opened) -> None:
    """Padded with null where it is too short."""
    fields = array.fields
    if node.size is not None:
        for index in range(node.size, len(fields)):
            del fields[index]
    for index, child in in_order(node.children):
        for missing in range(len(fields), index):
            fields[missing] = _NULL
        if isinstance(child, SetField):
            fields[index] = child.value
        elif isinstance(child, RemoveField) or (index not in fields and not child.creates):
            fields[index] = _NULL
        elif index not in fields:
            fields[index] = _Opened(DOCUMENT)


def _bytes_of(root: _Opened) -> bytes:
    _measure(root)
    pieces = [root.size.to_bytes(4, "little")]
    open_ = [iter(root.fields.items())]
    while open_:
        for name, value in open_[-1]:
            text = _text(name)
            if isinstance(value, _Opened):
                pieces.append(b"%c%s\0%s" % (value.kind, text, value.size.to_bytes(4, "little")))
                open_.append(iter(value.fields.items()))
                break
            pieces += (b"%c%s\0" % (value.kind, text), value.content)
        else:
            pieces.append(b"\0")
            open_.pop()
    return b"".join(pieces)


def _measure(root: _Opened) -> None:
    """From the innermost outwards."""
    found = [root]
    for opened in found:
        found += (value for value in opened.fields.values() if isinstance(value, _Opened))
    for opened in reversed(found):
        opened.size = 5
        for name, value in opened.fields.items():
            content = value.size if isinstance(value, _Opened) else value.end - value.at
            opened.size += 2 + len(_text(name)) + content


def _text(name: _Name) -> bytes:
    if isinstance(name, int):
        return b"%d" % name
    return name if isinstance(name, bytes) else name[0]
