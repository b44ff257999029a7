"""`Columns`: documents and updates of one table without the fields that do not go to the target. Pure.

    rule                        document at the source                    at the target
    drop: [ssn]                 {_id: 1, ssn: 7, n: 1}                    {_id: 1, n: 1}
    drop: [items.cost]          {items: [{sku: a, cost: 3}]}              {items: [{sku: a}]}
    mask: {name: "***"}         {name: {first: "A"}}                      {name: "***"}
    mask: {name: "***"}         {}                                        {}
    hash: [email, tags]         {email: "a@b", tags: ["x", 2], t: 1}      {email: "9c..", tags: ["5f..", "1e.."], t: 1}

A path leads through all elements of arrays. A hash replaces each value inside a document or an array, and keeps its shape; null stays.
Equal values have equal hashes: a number's is that of its value, whatever its type, as the server compares.

**Updates.** The result of a transformed update on a transformed document is the transformed result. So an update needs no document:

    update                                      with drop: [a.b]    with mask: {a.b: 0}     with hash: [a.b]
    updatedFields {"a.b": 5}                    nothing             {"a.b": 0}              {"a.b": "e1.."}
    updatedFields {"a.b.c": 5}                  nothing             {"a.b": 0}              {"a.b.c": "e1.."}
    updatedFields {a: {b: 5, c: 6}}             {a: {c: 6}}         {a: {b: 0, c: 6}}       {a: {b: "e1..", c: 6}}
    removedFields ["a.b"]                       nothing             as it is                as it is
    removedFields ["a.b.c"]                     nothing             nothing                 as it is
    truncatedArrays [{field: "a.b", ..}]        nothing             nothing                 as it is

A change below a masked field sets the mask: before 5.0, an update such as {"a.b.c": 5} may be what creates `a.b`. It may also create `a`,
which `drop` could not know, so there only whole top-level fields can be dropped.

A number in a path is an element of an array unless `disambiguatedPaths` says that it is a name. Where that is unknown, a field may be masked
that the rule does not name, never the other way round.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import bson

from changefeed.bson_bytes import ARRAY, DOCUMENT, NULL, STRING, document_of, element, elements, string
from changefeed.config.tables.column_rules import ColumnRule
from changefeed.documents.document import LOSSLESS
from changefeed.documents.row_key import canonical
from source.oplog.update import Part, described, text_of

_NUMBERS = frozenset({0x01, 0x10, 0x12, 0x13})
_Value: TypeAlias = tuple[int, bytes]
"""Type and bytes of a BSON value."""
_NOTHING: _Value = (NULL, b"")


class _Shows(IntEnum):
    """What the target sees of a field, from most to least."""

    ALL = 0
    HASH = 1
    MASK = 2
    NOTHING = 3


@dataclass(slots=True)
class _ColumnNode:
    """A field that rules name, or that has such fields."""

    shows: _Shows = _Shows.ALL
    mask: _Value = _NOTHING
    key: bytes = b""
    """Of its hashes."""
    fields: dict[bytes, _ColumnNode] = field(default_factory=dict)

    @property
    def final(self) -> bool:
        """Nothing below it is at the target."""
        return self.shows >= _Shows.MASK


class _Found(NamedTuple):
    """`node` None: no rule names the place or anything below it. `key`: the place is hashed, with this key. `depth`: how many parts of the path lead to a final node."""

    node: _ColumnNode | None
    key: bytes | None
    depth: int


def columns_of(rules: Iterable[ColumnRule], key_of: Callable[[str], bytes]) -> Columns | None:
    """`key_of` reads a key by its reference. None if the rows are shown as they are."""
    found: Columns | None = None
    for rule in rules:
        found = found or Columns()
        for path in rule.drop:
            found.drop(path)
        for path, constant in rule.mask.items():
            found.mask(path, constant)
        key = key_of(rule.hash_key) if rule.hash_key is not None else b""
        for path in rule.hash:
            found.hash(path, key)
    return found


class Columns:
    def __init__(self) -> None:
        self._root = _ColumnNode()

    def drop(self, path: str) -> None:
        self._restrict(path, _Shows.NOTHING)

    def mask(self, path: str, constant: object) -> None:
        raw = bson.encode({"": constant})
        self._restrict(path, _Shows.MASK, (raw[4], raw[6:-1]))

    def hash(self, path: str, key: bytes) -> None:
        self._restrict(path, _Shows.HASH, key=key)

    def _restrict(self, path: str, shows: _Shows, mask: _Value = _NOTHING, key: bytes = b"") -> None:
        node = self._root
        for name in path.split("."):
            node = node.fields.setdefault(name.encode(), _ColumnNode())
        if shows > node.shows:
            node.shows, node.mask, node.key = shows, mask, key

    def document(self, raw: bytes) -> bytes:
        return self._document(raw, self._root, None)

    def update(self, description: bytes) -> bytes:
        """From and to a raw `updateDescription`. It may be empty; then the update changes nothing at the target."""
        fields = {name: (kind, description[at:end]) for name, kind, at, end in elements(description)}
        known = {name: _parts(value) for name, (_, value) in _fields(fields.get(b"disambiguatedPaths"))}
        updated, paths, dropped = self._updated(fields, known)
        removed = [text for text in _texts(fields.get(b"removedFields")) if self._stays(text, known, at_mask=True)]
        truncated = [
            (kind, value)
            for _, (kind, value) in _fields(fields.get(b"truncatedArrays"))
            if self._stays(_text(dict(_fields((kind, value)))[b"field"][1]), known)
        ]
        if b"upsert" in fields and not (updated or removed or truncated):
            removed = dropped[:1]  # an upsert that changes nothing would insert nothing
        paths |= {text: known[text] for text in removed if text in known}
        paths |= {text: known[text] for text in _fields_of(truncated) if text in known}
        upsert = [element(fields[b"upsert"][0], b"upsert", fields[b"upsert"][1])] if b"upsert" in fields else []
        return document_of([*described(updated, removed, truncated, paths), *upsert])

    def _updated(
        self, fields: Mapping[bytes, _Value], known: Mapping[bytes, Sequence[Part]]
    ) -> tuple[list[tuple[int, bytes, bytes]], dict[bytes, Sequence[Part]], list[bytes]]:
        """The fields to set, in order, the meaning of their ambiguous names, and the fields that are left out."""
        dropped: list[bytes] = []
        updated: dict[bytes, _Value] = {}
        paths: dict[bytes, Sequence[Part]] = {}
        for text, (kind, value) in _fields(fields.get(b"updatedFields")):
            parts = known.get(text)
            found = self._find(parts if parts is not None else _split(text))
            if found.depth:
                assert found.node is not None
                if found.node.shows is _Shows.NOTHING:
                    dropped.append(text)
                    continue
                above = parts[: found.depth] if parts is not None else None
                whole = text_of(above if above is not None else text.split(b".")[: found.depth])
                while whole in updated and paths.get(whole) != above:  # a field whose name has a dot
                    above = above or _split(whole)
                    whole += b"'"
                updated[whole] = found.node.mask
                if above is not None:
                    paths[whole] = above
                continue
            shown = self._value(kind, value, found.node, found.key)
            if shown is not None:
                updated[text] = shown
                if parts is not None:
                    paths[text] = parts
        return [(kind, text, value) for text, (kind, value) in updated.items()], paths, dropped

    def _stays(self, text: bytes, known: Mapping[bytes, Sequence[Part]], *, at_mask: bool = False) -> bool:
        """Whether a removal or a truncation concerns what the target has. `at_mask`: so it does if it is of the masked field itself."""
        parts = known.get(text) or _split(text)
        found = self._find(parts)
        if not found.depth:
            return True
        assert found.node is not None
        return at_mask and found.node.shows is _Shows.MASK and found.depth == len(parts)

    def _find(self, parts: Sequence[Part]) -> _Found:
        node: _ColumnNode | None = self._root
        key: bytes | None = None
        for depth, part in enumerate(parts, 1):
            if isinstance(part, int):
                continue
            node = node.fields.get(part) if node is not None else None
            if node is None and key is None:
                break
            if node is not None:
                if node.final:
                    return _Found(node, key, depth)
                key = node.key if node.shows is _Shows.HASH else key
        return _Found(node, key, 0)

    def _value(self, kind: int, value: bytes, node: _ColumnNode | None, key: bytes | None) -> _Value | None:
        """What the target sees of a value; None: nothing. `key`: it is hashed with this key."""
        if node is not None and node.final:
            return node.mask if node.shows is _Shows.MASK else None
        if node is not None and node.shows is _Shows.HASH:
            key = node.key
        if key is None and (node is None or not node.fields):
            return kind, value
        if kind == DOCUMENT:
            return kind, self._document(value, node, key)
        if kind == ARRAY:
            return kind, self._elements(value, node, key)
        return (STRING, string(_hash(key, kind, value))) if key is not None and kind != NULL else (kind, value)

    def _document(self, raw: bytes, node: _ColumnNode | None, hash_key: bytes | None) -> bytes:
        named = node.fields if node is not None else {}
        body = []
        for name, kind, at, end in elements(raw):
            if hash_key is None and name not in named:
                body.append(raw[at - len(name) - 2 : end])
            elif (shown := self._value(kind, raw[at:end], named.get(name), hash_key)) is not None:
                body.append(element(shown[0], name, shown[1]))
        return document_of(body)

    def _elements(self, raw: bytes, node: _ColumnNode | None, hash_key: bytes | None) -> bytes:
        """Of an array: each element is in the array's place."""
        body = []
        for name, kind, at, end in elements(raw):
            shown = self._value(kind, raw[at:end], node, hash_key)
            assert shown is not None
            body.append(element(shown[0], name, shown[1]))
        return document_of(body)


def _hash(key: bytes, kind: int, value: bytes) -> bytes:
    message = bytes((kind,)) + value
    if kind in _NUMBERS:
        message = canonical(bson.decode(document_of([element(kind, b"n", value)]), LOSSLESS)["n"])
    return hmac.digest(key, message, "sha256").hex().encode()


def _split(text: bytes) -> list[Part]:
    return [int(part) if part.isdigit() else part for part in text.split(b".")]


def _fields(value: _Value | None) -> Iterator[tuple[bytes, _Value]]:
    if value is not None and value[0] in (DOCUMENT, ARRAY):
        for name, kind, at, end in elements(value[1]):
            yield name, (kind, value[1][at:end])


def _fields_of(truncated: Iterable[_Value]) -> list[bytes]:
    return [_text(dict(_fields(each))[b"field"][1]) for each in truncated]


def _texts(value: _Value | None) -> list[bytes]:
    return [_text(text) for _, (_, text) in _fields(value)]


def _text(value: bytes) -> bytes:
    return value[4:-1]


def _parts(value: bytes) -> list[Part]:
    return [
        _text(part) if kind == STRING else int.from_bytes(part, "little") for _, (kind, part) in _fields((ARRAY, value))
    ]
