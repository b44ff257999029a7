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
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from sink.mongodb.rows.statements.update_pipeline import TranslatedUpdate, pipeline

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)
_NAMES: CodecOptions[dict[str, Any]] = CodecOptions(dict, datetime_conversion=DatetimeConversion.DATETIME_MS)
_UPDATED_FIELDS = b"\x03updatedFields\x00"
_FIELDS_AT = 4 + len(_UPDATED_FIELDS)
NO_REMOVED, _NO_TRUNCATED = b"\x04removedFields\x00\x05\0\0\0\0", b"\x04truncatedArrays\x00\x05\0\0\0\0"
_NO_PATHS = b"\x03disambiguatedPaths\x00\x05\0\0\0\0"
_NOTHING_ELSE = frozenset(
    {
        NO_REMOVED + b"\0",
        NO_REMOVED + _NO_TRUNCATED + b"\0",
        NO_REMOVED + _NO_TRUNCATED + _NO_PATHS + b"\0",
    }
)


def translate(description: bytes, *, first: bool = False) -> TranslatedUpdate | None:
    """`first`: the document is what the source's was. Then a new field is not there, and `$set` appends it."""
    if (operators := plain_sets(description)) is not None:
        return TranslatedUpdate(RawBSONDocument(operators, _RAW))
    raw = RawBSONDocument(description, _RAW)
    updated: Mapping[str, Any] = raw.get("updatedFields") or {}
    removed: list[str] = raw.get("removedFields") or []
    special = raw.get("truncatedArrays") or raw.get("disambiguatedPaths")
    upserts = bool(raw.get("upsert"))
    if not (updated or removed or special):
        return None
    if not special and _classic(list(updated), removed):
        return TranslatedUpdate(operation=_operators(updated, removed), upserts=upserts)
    if first and not (special or upserts) and (absent := _appended(updated, removed)):
        gone = [name for name in removed if name not in updated]
        return TranslatedUpdate(operation=_operators(updated, gone), absent=absent)
    return pipeline(raw)._replace(upserts=upserts)


def _appended(updated: Mapping[str, Any], removed: list[str]) -> tuple[str, ...]:
    """The new fields, where `$set` has exactly this effect if they are not there. The others are there, so their order does not matter."""
    names = {**updated, **dict.fromkeys(removed)}
    new = tuple(name for name in updated if name in removed)
    return new if all(map(_addressable, names)) and _in_order(list(new)) and not _overlapping(names) else ()


def plain_sets(description: bytes) -> bytes | None:
    """The raw operator document of an update that only sets fields, as most do; it is made without decoding a value. None for others."""
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
    """Cached, because a program's updates name the same few fields again and again."""
    return bool(names) and _classic(list(names), [])


def _classic(updated: list[str], removed: list[str]) -> bool:
    """Whether `$set` and `$unset` have exactly this effect, with new fields in this order."""
    names = (*updated, *removed)
    return all(map(_addressable, names)) and _in_order(updated) and not _overlapping(names)


def _addressable(name: str) -> bool:
    return name != "" and "$" not in name and name[0] != "." and name[-1] != "." and ".." not in name


def _in_order(names: list[str]) -> bool:
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


def _operators(updated: Mapping[str, Any], removed: list[str]) -> dict[str, Any]:
    operators: dict[str, Any] = {}
    if updated:
        operators["$set"] = updated
    if removed:
        operators["$unset"] = dict.fromkeys(removed, "")
    return operators
