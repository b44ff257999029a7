"""`fold`: combines several changes of one document in a batch into one, where the result is provably the same. Pure.

    first              then                        folded
    anything           insert, replace             the later one: an insert if the first is an insert, else a replace
    anything           delete                      the delete, also after an insert: the insert may have been applied before
    insert, replace    update of plain fields      insert, replace of the changed document
    update             update, no path through     one update
                       a path of the other

All other changes stay as they are: paths into arrays or with ambiguous names, truncated arrays, a field that is removed and set again (it
would go to the end of its document).

Folding moves an effect in time, to the place of the first change. So in an `ordered` table only what no other row depends on is folded: a delete
takes in what was before it, and stays at its place; an update that touches no unique value is taken in by what was before it. Not in replays of tables
with unique values. In those of a full capped table it must be: a row that came and went would come again, and roll off one that stays.

"The same" holds from every state in which redelivery can start: a fold writes the whole document, or exactly the fields of its parts,
each with its last value, and it is a delete exactly when the last part is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import bson
from bson.raw_bson import RawBSONDocument

from changefeed.documents.document import field_names, raw_document
from changefeed.documents.row_key import row_key
from changefeed.event import RowType
from changefeed.table import TableName
from sink.dependence import Dependence
from sink.row import RowChange, TargetTable

_INSERT, _UPDATE = RowType.INSERT, RowType.UPDATE
_WHOLE = (RowType.INSERT, RowType.REPLACE)
_UPDATED_FIELDS = b"\x03updatedFields\0"
_FIELDS_AT = 4 + len(_UPDATED_FIELDS)
_NO_REMOVED, _NO_TRUNCATED = b"\x04removedFields\0\x05\0\0\0\0", b"\x04truncatedArrays\0\x05\0\0\0\0"
_NOTHING_ELSE = frozenset({_NO_REMOVED + b"\0", _NO_REMOVED + _NO_TRUNCATED + b"\0"})

_Chains: TypeAlias = dict[bytes, list[RowChange]]


def fold(changes: Sequence[RowChange], *, replay: bool = False) -> Sequence[RowChange]:
    """Each key's changes stay in order, at the place of the key's first change. A fold has the position of its last part."""
    if all(change.type is _INSERT for change in changes):
        return changes
    by_name: dict[TableName, _Chains] = {}
    by_table: dict[int, _Chains] = {}
    order: list[list[RowChange]] = []
    ordered = _OrderedTables(replay=replay)
    for change in changes:
        table = change.table
        if table.ordered:
            place = [change]
            if not ordered.take_in(place):
                order.append(place)
            continue
        chains = by_table.get(id(table))
        if chains is None:
            chains = by_table[id(table)] = by_name.setdefault(table.name, {})
        key = row_key(change.key)
        chain = chains.get(key)
        if chain is None:
            chains[key] = chain = [change]
            order.append(chain)
        elif (folded := fold_pair(chain[-1], change)) is not None:
            chain[-1] = folded
        else:
            chain.append(change)
    return [change for chain in order for change in chain]


class _OrderedTables:
    """The changes of each row that are to be written, each in a list of its own, which a later change may empty."""

    def __init__(self, *, replay: bool) -> None:
        self._replay = replay
        self._of: dict[TableName, dict[bytes, list[list[RowChange]]]] = {}
        self._latest: TargetTable | None = None
        self._rows: dict[bytes, list[list[RowChange]]] = {}
        """Of the latest table."""

    def take_in(self, place: list[RowChange]) -> bool:
        """Whether what was before the change in its row says it now."""
        change = place[0]
        table = change.table
        if table.dependence is None or (self._replay and table.dependence.paths != frozenset()):
            return False
        if table is not self._latest:
            self._latest, self._rows = table, self._of.setdefault(table.name, {})
        key = row_key(change.key)
        earlier = self._rows.get(key)
        if earlier is None:
            self._rows[key] = [place]
            return False
        if earlier and _taken_in(earlier, change, table.dependence):
            return True
        earlier.append(place)
        return False


def _taken_in(earlier: list[list[RowChange]], change: RowChange, dependence: Dependence) -> bool:
    """Whether what was before it in its row says now what the change does. `earlier`: each change in a list, which a delete empties."""
    if change.type is RowType.DELETE:
        while earlier and earlier[-1][0].key == change.key:
            earlier.pop().clear()
        return False
    if change.type is not _UPDATE or dependence.touched_by(change.update or b""):
        return False
    folded = fold_pair(earlier[-1][0], change)
    if folded is None:
        return False
    earlier[-1][0] = folded
    return True


def fold_pair(first: RowChange, then: RowChange) -> RowChange | None:
    """None where both changes are needed. Keys with different bytes are two documents on two shards, or 1 deleted and 1.0 inserted."""
    if first.key != then.key:
        return None
    if then.type is RowType.UPDATE:
        return _fold_update(first, then)
    if then.type is RowType.DELETE or first.type is then.type:
        return then
    return then._replace(type=RowType.INSERT if first.type is RowType.INSERT else RowType.REPLACE)


def _fold_update(first: RowChange, then: RowChange) -> RowChange | None:
    if first.type is _UPDATE and (names := _set_names(then.update)) and names == _set_names(first.update):
        return then
    later = _simple(then.update)
    if later is None or first.type is RowType.DELETE:
        return None
    if first.type in _WHOLE:
        return _changed_document(first, then, later)
    earlier = _simple(first.update)
    return None if earlier is None else _both(then, earlier, later)


@dataclass(slots=True)
class _Delta:
    """An update that only sets and removes fields."""

    sets: Mapping[str, Any]
    removed: list[str]


def _simple(update: bytes | None) -> _Delta | None:
    """None for an update with truncated arrays, ambiguous names, or numbers in a path, and for an upsert."""
    description = raw_document(update or b"")
    if any(description.get(name) for name in ("truncatedArrays", "disambiguatedPaths", "upsert")):
        return None
    sets, removed = _faithful(description["updatedFields"]), description.get("removedFields") or []
    if sets is None or not _unambiguous((*sets, *removed)):
        return None
    return _Delta(sets, removed)


def _set_names(update: bytes | None) -> tuple[str, ...] | None:
    """The fields of an update that only sets fields; None for other updates. Programs often set the same fields again and again."""
    if update is None or not update.startswith(_UPDATED_FIELDS, 4):
        return None
    end = _FIELDS_AT + int.from_bytes(update[_FIELDS_AT : _FIELDS_AT + 4], "little")
    if update[end:] not in _NOTHING_ELSE:
        return None
    names = field_names(update, _FIELDS_AT)
    return names if _unambiguous(names) else None


def _faithful(raw: RawBSONDocument) -> dict[str, Any] | None:
    """The fields, if encoding them gives the same bytes again. Some deprecated types, duplicate names and texts that are no UTF-8 do not."""
    fields = dict(raw)
    try:
        return fields if bson.encode(fields) == raw.raw else None
    except UnicodeEncodeError:
        return None


@lru_cache(maxsize=4096)
def _unambiguous(names: tuple[str, ...]) -> bool:
    return all(name and not any(part.isdigit() for part in name.split(".")) for name in names)


def _changed_document(whole: RowChange, update: RowChange, delta: _Delta) -> RowChange | None:
    """An existing field keeps its place. A new one goes to the end, in the event's order, as at the source."""
    if any("." in name for name in (*delta.sets, *delta.removed)):
        return None
    fields = _faithful(raw_document(whole.document or b""))
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
    """Whether a path of one leads through a path of the other. Equal paths are harmless."""
    here, there = set(names), set(others)
    return any(parent in there for name in here for parent in _parents(name)) or any(
        parent in here for name in there for parent in _parents(name)
    )


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]
