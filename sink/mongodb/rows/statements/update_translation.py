"""`translate`: the update command that has the effect of an update event. Pure.

Most events become a classic operator document, which is the cheapest. An aggregation pipeline expresses the others:

    updateDescription                                              becomes
    updatedFields {status: "paid", "lines.3.sku": 7}               {$set: {...}}
    removedFields ["note"]                                         {$unset: {note: ""}}
    a field named "a.b", "$x" or ""                                pipeline
    "a.0" where disambiguatedPaths says a is an object             pipeline
    truncatedArrays, alone or with `arr.1.b` in the same array     pipeline, with $slice and $concatArrays
    updatedFields {z: 1, a: 2}, not in the order $set gives        pipeline
    updatedFields {new: 1}, removedFields [new]                    the first time {$set: {...}} where new does not exist; pipeline
    paths of which one leads through another                       pipeline, one stage after the other
    nothing changed                                                None

**Order of fields.** An event lists new fields in the order in which the source appended them. `$set` appends in lexicographic
order (5.0+: numeric names by number), whatever the given order is, so it is used only if the event has this order; an update that the
source's user wrote with `$set` always has. A pipeline appends in the given order. Both keep the place of existing fields, so the target
becomes equal to the source byte by byte.

**A pipeline** can address any field and truncate any array.

A worked example. `arr` was truncated to two elements and `arr.1.b` was set, so

    $replaceWith: $mergeObjects of $$ROOT and an object with "arr":
        when it is an array:    the first element of $slice [arr, 2], then [its second with "b" set], then the rest
        otherwise:              unchanged

**Names.** A path in an expression cannot name a field `a.b`, `$a` or ``. `$setField` can, but only from 5.0 on; `$mergeObjects`,
`$objectToArray` and `$arrayToObject` can on all servers.

**Values** are copied as bytes: a driver decodes no text that is not UTF-8, and encodes some deprecated types as others.

**Shape.** A pipeline leaves a part unchanged if it does not have the shape that the path needs. `fits` is the condition that all parts
have it. It is added to the filter of the update, so that a document of another shape counts as missing.

**Zero timestamps.** Old servers may log a pipeline's update as a replacement, in which their secondaries put their own time into a top-level
`Timestamp(0, 0)`. So a document that has one does not fit either, and no pipeline sets one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from bson.timestamp import Timestamp

from changefeed.bson_bytes import TIMESTAMP, document_of
from changefeed.documents.document import field_names, raw_document
from sink.dependence import updated_names
from sink.mongodb.rows.statements.document_edit import (
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

Expression: TypeAlias = Any
"""An aggregation expression: any BSON value."""

_UPDATED_FIELDS = b"\x03updatedFields\x00"
_FIELDS_AT = 4 + len(_UPDATED_FIELDS)
NO_REMOVED, _NO_TRUNCATED = b"\x04removedFields\x00\x05\0\0\0\0", b"\x04truncatedArrays\x00\x05\0\0\0\0"
_NO_PATHS = b"\x03disambiguatedPaths\x00\x05\0\0\0\0"
_NOTHING_ELSE = frozenset(
    {NO_REMOVED + b"\0", NO_REMOVED + _NO_TRUNCATED + b"\0", NO_REMOVED + _NO_TRUNCATED + _NO_PATHS + b"\0"}
)
_ALL_THE_REST = 2**31 - 1
_MOST_PARTS = 20
"""Of a path in a pipeline. A server accepts 200 levels in a command, and each part takes up to nine."""
_VALUES: Expression = {"$map": {"input": {"$objectToArray": "$$ROOT"}, "in": "$$this.v"}}
_NO_ZERO_TIME: Expression = {"$not": [{"$in": [Timestamp(0, 0), _VALUES]}]}


class Inexpressible(Exception):
    """No statement has the effect of the update, which changes something too deep or sets a zero timestamp: see `row_rewrite.py`."""


class TranslatedUpdate(NamedTuple):
    """`operation` is an operator document or a pipeline; `fits` is the condition on the document, of a pipeline."""

    operation: Mapping[str, Any] | list[dict[str, Any]]
    fits: Expression | None = None
    absent: tuple[str, ...] = ()
    """The fields that must not exist."""
    upserts: bool = False
    """Whether the update creates a missing document, as updates in a user's `applyOps` do."""


class _Part(NamedTuple):
    """A child whose value is in a variable."""

    value: str


_Child: TypeAlias = EditNode | SetField | RemoveField | _Part


def translate(description: bytes, *, first: bool = False) -> TranslatedUpdate | None:
    """`first`: the document is what the source's was. Then a new field is not there, and `$set` appends it."""
    if (operators := plain_sets(description)) is not None:
        return TranslatedUpdate(raw_document(operators))
    raw, updated = raw_document(description), updated_names(description)
    removed: list[str] = raw.get("removedFields") or []
    special = raw.get("truncatedArrays") or raw.get("disambiguatedPaths")
    upserts = bool(raw.get("upsert"))
    if not (updated or removed or special):
        return None
    values = raw["updatedFields"] if updated else None
    if not special and _classic(updated, removed):
        return TranslatedUpdate(operation=_operators(values, removed), upserts=upserts)
    if first and not (special or upserts) and (absent := _appended(updated, removed)):
        gone = [name for name in removed if name not in updated]
        return TranslatedUpdate(operation=_operators(values, gone), absent=absent)
    return pipeline(description)._replace(upserts=upserts)


def _appended(updated: Sequence[str], removed: Sequence[str]) -> tuple[str, ...]:
    """The new fields, where `$set` has exactly this effect if they are not there. The others are there, so their order does not matter, but for
    those of a bucket's `control`: MongoDB 5.0 logs new ones like changed ones.
    """
    names = {*updated, *removed}
    new = tuple(name for name in updated if name in removed)
    ordered = [name for name in updated if name in removed or name.startswith("control.")]
    return new if all(map(_addressable, names)) and _in_order(ordered) and not _overlapping(names) else ()


def plain_sets(description: bytes) -> bytes | None:
    """The raw operator document of an update that only sets fields, as most do; it is made without decoding a value. None for others."""
    if not description.startswith(_UPDATED_FIELDS, 4):
        return None
    size = int.from_bytes(description[_FIELDS_AT : _FIELDS_AT + 4], "little")
    end = _FIELDS_AT + size
    if description[end:] not in _NOTHING_ELSE:
        return None
    if not _plainly_classic(field_names(description, _FIELDS_AT)):
        return None
    return b"".join(((size + 11).to_bytes(4, "little"), b"\x03$set\x00", description[_FIELDS_AT:end], b"\x00"))


@lru_cache(maxsize=4096)
def _plainly_classic(names: tuple[str, ...]) -> bool:
    """Cached, because a program's updates name the same few fields again and again."""
    return bool(names) and _classic(names, ())


def _classic(updated: Sequence[str], removed: Sequence[str]) -> bool:
    """Whether `$set` and `$unset` have exactly this effect, with new fields in this order."""
    names = (*updated, *removed)
    return all(map(_addressable, names)) and _in_order(updated) and not _overlapping(names)


def _addressable(name: str) -> bool:
    return name != "" and "$" not in name and name[0] != "." and name[-1] != "." and ".." not in name


def _in_order(names: Iterable[str]) -> bool:
    """Whether the names within each parent are in lexicographic order for every server version."""
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
    """Whether one path leads through another; `$set` and `$unset` refuse that."""
    ordered = sorted(names, key=lambda name: name.split("."))
    return any(after == name or after.startswith(name + ".") for name, after in pairwise(ordered))


def _operators(updated: Mapping[str, Any] | None, removed: list[str]) -> dict[str, Any]:
    operators: dict[str, Any] = {}
    if updated is not None:
        operators["$set"] = updated
    if removed:
        operators["$unset"] = dict.fromkeys(removed, "")
    return operators


def pipeline(description: bytes) -> TranslatedUpdate:
    """Translates an `updateDescription`."""
    edits = list(_edits(description))
    conditions = [_distinct("$$ROOT"), _NO_ZERO_TIME, *_conditions(shape_of(edits), "$$ROOT")]
    return TranslatedUpdate(operation=_stages(edits), fits={"$and": conditions})


def _stages(edits: Iterable[tuple[DocumentPath, Edit]]) -> list[dict[str, Any]]:
    return [{"$replaceWith": _fields(root.children, "$$ROOT")} for root in stages_of(edits)]


def _edits(description: bytes) -> Iterator[tuple[DocumentPath, Edit]]:
    for path, edit in edits_of(description):
        if len(path) > _MOST_PARTS or (len(path) == 1 and _sets_zero_time(edit)):
            raise Inexpressible
        yield path, edit


def _sets_zero_time(edit: Edit) -> bool:
    return isinstance(edit, SetField) and edit.value.kind == TIMESTAMP and not any(edit.value.content)


def _changed(node: EditNode, current: Expression) -> Expression:
    """`current` with the node's changes, or unchanged if it does not have the shape for them."""
    if node.creates:
        current = _if(_is_missing(current), {"$literal": {}}, current)
    if node.unclear:
        edited = _if({"$or": [_is_array("$$v"), _is_document("$$v")]}, _either(node), "$$v")
    elif node.array:
        edited = _if(_is_array("$$v"), _elements(node.children, "$$v", node.size), "$$v")
    else:
        edited = _if(_is_document("$$v"), _fields(node.children, "$$v"), "$$v")
    return {"$let": {"vars": {"v": current}, "in": edited}}


def _either(node: EditNode) -> Expression:
    """Of an array or a document. Each new part is stated once, for both: a pipeline would double with each level otherwise."""
    parts: dict[str, Expression] = {}
    children: dict[str | int, _Child] = {}
    for name, child in node.children.items():
        if isinstance(child, RemoveField):
            children[name] = child
            continue
        part = f"p{len(parts)}"
        here = _if(_is_array("$$v"), {"$arrayElemAt": ["$$v", int(name)]}, _field("$$v", str(name)))
        parts[part] = _element(child, here)
        children[name] = _Part(f"$${part}")
    return {"$let": {"vars": parts, "in": _if(_is_array("$$v"), _elements(children, "$$v"), _fields(children, "$$v"))}}


def _fields(children: Mapping[str | int, _Child], document: str) -> Expression:
    """The document without the removed fields, merged with each set field in order: an existing field keeps its place."""
    removed = [str(name) for name, child in children.items() if isinstance(child, RemoveField)]
    kept = _without(removed, document) if removed else document
    return {"$mergeObjects": [kept, *_layers(children, document)]}


def _layers(children: Mapping[str | int, _Child], document: str) -> Iterator[Expression]:
    constants: list[bytes] = []
    for name, child in children.items():
        match child:
            case SetField(value):
                constants.append(value.named(str(name).encode()))
                continue
            case RemoveField():
                continue
            case EditNode():
                layer = _object(str(name), _changed(child, _field(document, str(name))))
            case _Part():
                layer = _object(str(name), child.value)
        if constants:
            yield {"$literal": raw_document(document_of(constants))}
            constants = []
        yield layer
    if constants:
        yield {"$literal": raw_document(document_of(constants))}


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


def _elements(children: Mapping[str | int, _Child], array: str, size: int | None = None) -> Expression:
    """The array with its changed elements: its slices and the new elements, concatenated, padded with null where it is too short."""
    base: Expression = array
    if size is not None:
        base = {"$slice": [array, size]} if size else {"$literal": []}
    pieces: list[Expression] = []
    begin = 0
    for index, child in in_order(children):
        if index > begin:
            pieces += _padded("$$a", begin, index)
        pieces.append([_element(child, {"$arrayElemAt": ["$$a", index]})])
        begin = index + 1
    if not pieces:
        return base
    pieces.append({"$slice": ["$$a", begin, _ALL_THE_REST]})
    return {"$let": {"vars": {"a": base}, "in": {"$concatArrays": pieces}}}


def _element(child: _Child, current: Expression) -> Expression:
    match child:
        case SetField(value):
            return raw_document(document_of([value.named(b"$literal")]))
        case RemoveField():
            return {"$literal": None}
        case EditNode():
            return _changed(child, current)
        case _Part(value):
            return value


def _padded(array: str, begin: int, end: int) -> list[Expression]:
    missing = {"$range": [{"$max": [begin, {"$size": array}]}, end]}
    return [{"$slice": [array, begin, end - begin]}, {"$map": {"input": missing, "in": {"$literal": None}}}]


def _conditions(node: EditNode, current: str) -> list[Expression]:
    """The conditions on the embedded documents and arrays of a variable's value."""
    conditions: list[Expression] = []
    for name, child in () if node.unclear else node.nodes():
        if node.array:
            part = _if(_is_array(current), {"$arrayElemAt": [current, int(name)]}, "$$REMOVE")
        else:
            part = _if(_is_document(current), _field(current, str(name)), "$$REMOVE")
        shapely = {"$and": [_shape(child, "$$v"), *_conditions(child, "$$v")]}
        conditions.append({"$let": {"vars": {"v": part}, "in": shapely}})
    return conditions


def _shape(node: EditNode, current: str) -> Expression:
    shapes = [_is_array(current)] if node.array or node.unclear else []
    if not node.array:
        shapes.append({"$and": [_is_document(current), _distinct(current)]})
    if node.creates:
        shapes.append(_is_missing(current))
    return {"$or": shapes}


def _distinct(document: Expression) -> Expression:
    """Whether no name stands twice in it. A pipeline would leave out one of the two, and servers from 5.0 on may end when they log such a change."""
    names = {"$objectToArray": {"$mergeObjects": [document]}}
    return {"$eq": [{"$size": {"$objectToArray": document}}, {"$size": names}]}


def _is_array(value: Expression) -> Expression:
    return {"$isArray": [value]}


def _is_document(value: Expression) -> Expression:
    return {"$eq": [{"$type": value}, "object"]}


def _is_missing(value: Expression) -> Expression:
    return {"$eq": [{"$type": value}, "missing"]}


def _if(condition: Expression, then: Expression, otherwise: Expression) -> Expression:
    return {"$cond": [condition, then, otherwise]}
