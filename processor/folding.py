"""`fold`: several changes of one document in a batch as one, where the result is provably the same. Pure.

    first              then                        folded
    anything           insert, replace             that one; after a delete or an update an insert is a replace
    anything           delete                      the delete, also of an insert: it may have been applied before
    insert, replace    update of plain fields      insert, replace of the changed document
    update             update, no path through     one update
                       another's

Anything else stays as it is: paths into arrays or with disputed names, truncated arrays, a field removed and set again (it
would go to the end of its document). Changes of `ordered` tables are never folded, since folding moves an effect in time.

"The same" holds from every state that redelivery can begin with: a fold says the whole document, or exactly the fields its
parts said, each with its last value, and it is a delete exactly when the last part is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from changefeed.event import RowType
from changefeed.row_key import row_key
from changefeed.table import TableName
from sink.row import RowChange

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)
_WHOLE = (RowType.INSERT, RowType.REPLACE)


def fold(changes: Sequence[RowChange]) -> Sequence[RowChange]:
    """Each key's changes stay in order, at the place of its first one. A fold has the position of its last part."""
    if all(change.type is RowType.INSERT for change in changes):
        return changes
    chains: dict[tuple[TableName, bytes], list[RowChange]] = {}
    order: list[list[RowChange]] = []
    for change in changes:
        if change.table.ordered:
            order.append([change])
            continue
        identity = change.table.name, row_key(change.key)
        chain = chains.get(identity)
        if chain is None:
            chains[identity] = chain = [change]
            order.append(chain)
        elif (folded := fold_pair(chain[-1], change)) is not None:
            chain[-1] = folded
        else:
            chain.append(change)
    return [change for chain in order for change in chain]


def fold_pair(first: RowChange, then: RowChange) -> RowChange | None:
    """None where both are needed. Keys of other bytes are two documents on two shards, or 1 deleted and 1.0 inserted."""
    if first.key != then.key:
        return None
    if then.type is RowType.UPDATE:
        return _fold_update(first, then)
    if then.type is RowType.DELETE or first.type is then.type:
        return then
    return then._replace(type=RowType.INSERT if first.type is RowType.INSERT else RowType.REPLACE)


def _fold_update(first: RowChange, then: RowChange) -> RowChange | None:
    later = _simple(then.update)
    if later is None or first.type is RowType.DELETE:
        return None
    if first.type in _WHOLE:
        return _changed_document(first, then, later)
    earlier = _simple(first.update)
    return None if earlier is None else _both(then, earlier, later)


@dataclass(slots=True)
class _Delta:
    """An update that sets and removes, and does nothing else."""

    sets: Mapping[str, Any]
    removed: list[str]


def _simple(update: bytes | None) -> _Delta | None:
    """None for an update with truncated arrays, disputed names, or numbers in a path."""
    description = RawBSONDocument(update or b"", _RAW)
    if description.get("truncatedArrays") or description.get("disambiguatedPaths"):
        return None
    sets, removed = _faithful(description["updatedFields"]), description.get("removedFields") or []
    if sets is None or not _undisputed((*sets, *removed)):
        return None
    return _Delta(sets, removed)


def _faithful(raw: RawBSONDocument) -> dict[str, Any] | None:
    """Its fields, if they make the same bytes again: those of a few long deprecated types, or of one name twice, do not."""
    fields = dict(raw)
    return fields if bson.encode(fields) == raw.raw else None


@lru_cache(maxsize=4096)
def _undisputed(names: tuple[str, ...]) -> bool:
    return all(name and not any(part.isdigit() for part in name.split(".")) for name in names)


def _changed_document(whole: RowChange, update: RowChange, delta: _Delta) -> RowChange | None:
    """A field that is there keeps its place; a new one goes to the end, in the event's order as at the source."""
    if any("." in name for name in (*delta.sets, *delta.removed)):
        return None
    fields = _faithful(RawBSONDocument(whole.document or b"", _RAW))
    if fields is None:
        return None
    for name in delta.removed:
        fields.pop(name, None)
    fields.update(delta.sets)
    return update._replace(type=whole.type, document=bson.encode(fields), update=None)


def _both(then: RowChange, earlier: _Delta, later: _Delta) -> RowChange | None:
    if later.sets.keys() & set(earlier.removed):
        return None
    if _through((*earlier.sets, *earlier.removed), (*later.sets, *later.removed)):
        return None
    sets = {name: value for name, value in earlier.sets.items() if name not in later.removed} | dict(later.sets)
    removed = list(dict.fromkeys((*earlier.removed, *later.removed)))
    return then._replace(update=bson.encode({"updatedFields": sets, "removedFields": removed}))


def _through(names: Iterable[str], others: Iterable[str]) -> bool:
    """Whether a path of one leads through a path of the other; the same path is no harm."""
    here, there = set(names), set(others)
    return any(parent in there for name in here for parent in _parents(name)) or any(
        parent in here for name in there for parent in _parents(name)
    )


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]
