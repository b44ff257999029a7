"""`description`: the content of an update entry as an `updateDescription`. Pure.

    o                                                  meaning
    {_id: 7, ...}                                      a whole document: a replace, not an update
    {$v: 2, diff: {d, u, i, s<field>: {...}}}          from 5.0 on: sections, in this order
    {$v: 1, $set: {...}, $unset: {...}}, or no $v      before 5.0: paths as in `$set`

A worked example, of a diff:

    {d: {a: false}, u: {b: 2}, i: {c: 3}, sarr: {a: true, l: 2, u1: 9, s0: {u: {x: 1}}}}
    removedFields [a, c]   updatedFields {b: 2, c: 3, arr.1: 9, arr.0.x: 1}   truncatedArrays [{field: arr, newSize: 2}]

A field under `i` is new, or was moved to the end of its document: it is first removed and then set, which puts it at the end.
`disambiguatedPaths` lists each path with a dot in the name of a field: such a path is ambiguous without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from struct import Struct
from typing import TypeAlias

from changefeed.bson_bytes import ARRAY, DOCUMENT, STRING, array, document_of, element, elements, string
from changefeed.errors import SourceUnsupported

Part: TypeAlias = bytes | int
"""The name of a field, or the index of an element."""
DiffPath: TypeAlias = tuple[Part, ...]

_INTEGER = 0x10
_INT32 = Struct("<i").unpack_from
_ID = b"_id\0"
_DIFF = b"\x10$v\0\x02\0\0\0\x03diff\0"
_ONLY_U = b"\x03u\0"
_ARRAY_FIRST = b"\x08a\0"
_EMPTY = b"\x05\0\0\0\0"
_NOTHING_ELSE = b"\x04removedFields\0" + _EMPTY + b"\x04truncatedArrays\0" + _EMPTY + b"\0"
_UPDATED = b"\x03updatedFields\0"
_ADDED = len(_UPDATED) + len(_NOTHING_ELSE) + 4
_DIFF_AT, _SECTION_AT = 4, 4 + len(_DIFF) + 4
UPSERT = b"\x08upsert\0\x01"


class UnknownUpdate(SourceUnsupported):
    """An update in an unknown form: no documented release writes it for a table of a user."""


def is_replacement(o: bytes) -> bool:
    """The server puts `_id` first. A replacement may contain fields like `$v`, so this is checked before anything else."""
    if o.startswith(_ID, 5):
        return True
    return not o.startswith(_DIFF, _DIFF_AT) and any(name == b"_id" for name, *_ in elements(o))


def description(o: bytes) -> bytes:
    """The raw `updateDescription` of an update that is not a replacement."""
    if o.startswith(_DIFF, _DIFF_AT) and o.startswith(_ONLY_U, _SECTION_AT):
        at = _SECTION_AT + len(_ONLY_U)
        end = at + _INT32(o, at)[0]
        if end + 2 == len(o) and b"." not in o[at:end]:
            updated = o[at:end]
            return b"".join(((len(updated) + _ADDED).to_bytes(4, "little"), _UPDATED, updated, _NOTHING_ELSE))
    return _described(o).document()


def upserting(raw: bytes) -> bytes:
    """The same description, for an update that inserts a missing document."""
    return document_of([raw[4:-1], UPSERT])


@dataclass(slots=True)
class _Description:
    updated: list[tuple[DiffPath, int, bytes]] = field(default_factory=list)
    removed: list[DiffPath] = field(default_factory=list)
    truncated: list[tuple[DiffPath, int]] = field(default_factory=list)
    literal: bool = True
    """Whether dots are part of field names. In paths of `$v: 1` they are separators."""

    def document(self) -> bytes:
        text, ambiguous = self._texts()
        updated = [(kind, text[path], value) for path, kind, value in self.updated]
        truncated = [
            (
                DOCUMENT,
                document_of([element(STRING, b"field", string(text[path])), element(_INTEGER, b"newSize", _int(size))]),
            )
            for path, size in self.truncated
        ]
        return document_of(described(updated, [text[path] for path in self.removed], truncated, ambiguous))

    def _texts(self) -> tuple[dict[DiffPath, bytes], dict[bytes, DiffPath]]:
        """A text for each path, and the meaning of ambiguous texts. If `a.b` stands for two paths, the one with the dotted name gets another text."""
        paths = [path for path, _, _ in self.updated] + [path for path, _ in self.truncated] + self.removed
        dotted = [path for path in dict.fromkeys(paths) if self.literal and any(_dotted(part) for part in path)]
        texts = {path: text_of(path) for path in paths if path not in dotted}
        taken = set(texts.values())
        for path in dotted:
            text = text_of(path)
            while text in taken:
                text += b"'"
            texts[path] = text
            taken.add(text)
        return texts, {texts[path]: path for path in dotted}


def described(
    updated: Iterable[tuple[int, bytes, bytes]],
    removed: Iterable[bytes],
    truncated: Iterable[tuple[int, bytes]],
    paths: Mapping[bytes, Iterable[Part]],
) -> list[bytes]:
    """The elements of an `updateDescription`. `updated`: types, paths and values. `paths`: the meaning of ambiguous ones."""
    body = [
        element(DOCUMENT, b"updatedFields", document_of([element(*each) for each in updated])),
        element(ARRAY, b"removedFields", array((STRING, string(text)) for text in removed)),
        element(ARRAY, b"truncatedArrays", array(truncated)),
    ]
    if paths:
        meanings = [element(ARRAY, text, array(map(_part, parts))) for text, parts in paths.items()]
        body.append(element(DOCUMENT, b"disambiguatedPaths", document_of(meanings)))
    return body


def _described(o: bytes) -> _Description:
    fields = {name: (kind, o[at:end]) for name, kind, at, end in elements(o)}
    version = fields.pop(b"$v", None)
    if version is not None and int.from_bytes(version[1], "little") == 2 and fields.keys() == {b"diff"}:
        found = _Description()
        _read(found, fields[b"diff"][1])
        return found
    if not fields or fields.keys() - {b"$set", b"$unset"}:
        raise UnknownUpdate(f"an update in the oplog has an unknown form: fields {sorted(fields)}, {len(o)} bytes")
    found = _Description(literal=False)
    if b"$set" in fields:
        found.updated = [((name,), kind, value) for name, kind, value in _fields(fields[b"$set"][1])]
    if b"$unset" in fields:
        found.removed = [(name,) for name, *_ in _fields(fields[b"$unset"][1])]
    return found


def _read(found: _Description, diff: bytes) -> None:
    """Depth first, in the order of the entry. A diff may be as deep as a document, so nothing calls itself, and no inner diff is copied."""
    open_ = [_document(found, (), diff, 0)]
    while open_:
        inner = next(open_[-1], None)
        if inner is None:
            open_.pop()
            continue
        path, at = inner
        # `a` comes first in the diff of an array; a field of that name would be inside a section
        read = _array if diff.startswith(_ARRAY_FIRST, at + 4) else _document
        open_.append(read(found, path, diff, at))


def _document(found: _Description, parents: DiffPath, diff: bytes, at: int) -> Iterator[tuple[DiffPath, int]]:
    """The inner diffs: of which path, and where each begins."""
    for section, kind, begin, end in elements(diff, at):
        if section == b"d":
            found.removed += [(*parents, name) for name, *_ in elements(diff, begin)]
        elif section == b"u":
            found.updated += [((*parents, name), set_, diff[a:b]) for name, set_, a, b in elements(diff, begin)]
        elif section == b"i":
            for name, inserted, a, b in elements(diff, begin):
                found.removed.append((*parents, name))
                found.updated.append(((*parents, name), inserted, diff[a:b]))
        elif section.startswith(b"s") and kind == DOCUMENT:
            yield (*parents, section[1:]), begin
        else:
            raise UnknownUpdate(f"an update in the oplog has an unknown section {section!r}, of {end - at} bytes")


def _array(found: _Description, path: DiffPath, diff: bytes, at: int) -> Iterator[tuple[DiffPath, int]]:
    for name, kind, begin, end in islice(elements(diff, at), 1, None):
        if name == b"l":
            found.truncated.append((path, int.from_bytes(diff[begin:end], "little")))
        elif name.startswith(b"u"):
            found.updated.append(((*path, int(name[1:])), kind, diff[begin:end]))
        elif name.startswith(b"s"):
            yield (*path, int(name[1:])), begin
        else:
            raise UnknownUpdate(
                f"the diff of an array in the oplog has an unknown entry {name!r}, of {end - begin} bytes"
            )


def _fields(document: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    for name, kind, at, end in elements(document):
        yield name, kind, document[at:end]


def _dotted(part: Part) -> bool:
    return isinstance(part, bytes) and b"." in part


def text_of(path: Iterable[Part]) -> bytes:
    return b".".join(part if isinstance(part, bytes) else b"%d" % part for part in path)


def _part(part: Part) -> tuple[int, bytes]:
    return (STRING, string(part)) if isinstance(part, bytes) else (_INTEGER, _int(part))


def _int(value: int) -> bytes:
    return value.to_bytes(4, "little")
