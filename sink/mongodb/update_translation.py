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
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from sink.mongodb.update_pipeline import Update, pipeline

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


def translate(description: bytes, *, viable: bool = False) -> Update | None:
    """`viable` asks for the pipeline, which applies all that a document of another shape can take."""
    if not viable and (operators := plain_sets(description)) is not None:
        return Update(RawBSONDocument(operators, _RAW))
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
    return pipeline(updated, removed, truncated, paths)


def plain_sets(description: bytes) -> bytes | None:
    """What most events are, a few fields set and nothing else: the raw operator document, without building a value of any field."""
    if not description.startswith(_UPDATED_FIELDS, 4):
        return None
    size = int.from_bytes(description[_FIELDS_AT : _FIELDS_AT + 4], "little")
    end = _FIELDS_AT + size
    if description[end:] not in _NOTHING_ELSE:
        return None
    updated = description[_FIELDS_AT:end]
    if not _plainly_classic(tuple(bson.decode(updated, _NAMES))):
        return None
    return b"".join(((size + 11).to_bytes(4, "little"), b"\x03$set\x00", updated, b"\x00"))


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
