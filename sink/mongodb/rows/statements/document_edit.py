"""`edited`, `fits`: update descriptions applied to a document here, exactly as their pipeline does it at the target. Pure.

No statement is needed, so no limit of one counts: neither the depth of a path nor the size of a command. What is not changed keeps its bytes, whatever
its type. Documents and arrays are opened only on the way to a change, and nothing here calls itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from changefeed.bson_bytes import ARRAY, DOCUMENT, NULL, elements
from sink.mongodb.rows.statements.edit_tree import (
    DocumentPath,
    Edit,
    EditNode,
    RemoveField,
    SetField,
    edits_of,
    in_order,
    shape_of,
    stages_of,
)

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)
_UPDATED = b"updatedFields"
_NO_UPDATE = b"\x05\0\0\0\0"


class _RawValue(NamedTuple):
    """A value as it is."""

    kind: int
    base: bytes
    at: int
    end: int


_Name: TypeAlias = "bytes | int | tuple[bytes, int]"
"""Of a field, or an index. A later field of the same name has its place beside the name: no edit finds it."""


@dataclass(slots=True, eq=False)
class _Opened:
    """A document or an array of which something may change."""

    kind: int
    fields: dict[_Name, _RawValue | _Opened] = field(default_factory=dict)
    size: int = 0

    @classmethod
    def of(cls, span: _RawValue) -> _Opened:
        opened = cls(span.kind)
        fields = opened.fields
        for name, kind, at, end in elements(span.base, span.at):
            key: _Name = name
            if span.kind == ARRAY:
                key = len(fields)
            elif name in fields:
                key = name, len(fields)
            fields[key] = _RawValue(kind, span.base, at, end)
        return opened

    def key(self, name: str | int) -> _Name:
        return int(name) if self.kind == ARRAY else str(name).encode()

    def inside(self, name: str | int) -> _RawValue | _Opened | None:
        return self.fields.get(self.key(name))

    def opened(self, name: str | int) -> _Opened | None:
        """The document or array there; None if there is something else."""
        key = self.key(name)
        value = self.fields.get(key)
        if isinstance(value, _RawValue) and value.kind in (DOCUMENT, ARRAY):
            value = self.fields[key] = _Opened.of(value)
        return value if isinstance(value, _Opened) else None


_NULL = _RawValue(NULL, b"", 0, 0)


def edited(document: bytes, updates: Iterable[bytes]) -> bytes:
    """The document after the updates, in order. What does not fit it is left out."""
    root = _Opened.of(_RawValue(DOCUMENT, document, 0, len(document)))
    for update in updates:
        for stage in stages_of(_edits(update)):
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
    root = _Opened.of(_RawValue(DOCUMENT, document, 0, len(document)))
    pairs: list[tuple[EditNode, _Opened | None]] = [(shape_of(_edits(update)), root)]
    for node, holder in pairs:
        for name, child in () if node.unclear else node.nodes():
            there = holder is not None and (holder.kind == ARRAY) is node.array
            value = holder.inside(name) if holder is not None and there else None
            inner = holder.opened(name) if holder is not None and there else None
            if not (child.creates if value is None else _shaped(child, inner)):
                return False
            pairs.append((child, inner))
    return True


def _edits(update: bytes) -> Iterator[tuple[DocumentPath, Edit]]:
    spans = {name: (kind, at) for name, kind, at, _ in elements(update)}
    values = []
    if _UPDATED in spans:
        values = [
            (name.decode(), _RawValue(kind, update, at, end))
            for name, kind, at, end in elements(update, spans[_UPDATED][1])
        ]
    return edits_of(RawBSONDocument(update, _RAW), values)


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
            pieces += (b"%c%s\0" % (value.kind, text), value.base[value.at : value.end])
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
