"""`Unexplained`: replayed updates that did not fit, until a later change of their key explains why. Pure.

In a replay the target may be ahead, so an update may find no document, or one of another shape. If that is the reason, then the change
that caused it comes after the update and is replayed, too:

    did not fit                       is explained by a later
    document missing                  delete, insert, replace
    the target refuses the row        delete, insert, replace
    `a.b.c: 1`, a.b is a number       delete, insert, replace; change of `a.b` or `a` as a whole
    `a` cut to 2, a is a number       the same for `a`

A worked example. The target is ahead of these changes, and another client deleted `x` at the target:

    5  update x: n = 1         missing         x is unexplained
    6  update y: a.b = 1       a is a number   y is unexplained, and needs a document at `a`
    7  update x: n = 2         missing         x is unexplained
    8  update y: a = 7                         y is explained
                                               x is left: no change explains it

Rows that are left at the end of the whole replay are divergence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import bson

from changefeed.documents.document import raw_document
from changefeed.event import RowType
from changefeed.table import TableId
from sink.dependence import updated_names
from sink.mongodb.rows.statements.document_edit import fits
from sink.row import RowChange

_Place: TypeAlias = tuple[int, bytes]
MISSING = "its document is missing"


class _Need(NamedTuple):
    """A part of an update that does not fit every document. `ground`: the paths at or above it that need the right shape."""

    kind: str
    ground: frozenset[str]
    disambiguated: list[str | int] | None


@dataclass(slots=True)
class _Misfit:
    place: _Place
    needs: dict[str, _Need]

    def fits(self, document: bytes) -> bool:
        """Whether the document fits the unexplained parts."""
        described: dict[str, Any] = {"updatedFields": {}, "removedFields": [], "truncatedArrays": []}
        paths = {}
        for name, need in self.needs.items():
            match need.kind:
                case "set":
                    described["updatedFields"][name] = None
                case "removed":
                    described["removedFields"].append(name)
                case _:
                    described["truncatedArrays"].append({"field": name, "newSize": 0})
            if need.disambiguated:
                paths[name] = need.disambiguated
        return fits(document, bson.encode({**described, "disambiguatedPaths": paths}))


@dataclass(slots=True)
class OpenRow:
    """A key with updates that did not fit; `change` is the last of them."""

    change: RowChange
    reason: str
    missing_at: _Place | None = None
    """The last update that found no document."""
    misfits: dict[bytes, _Misfit] = field(default_factory=dict)
    """By the update's field names, so that repeated updates of the same fields need no more memory."""

    @property
    def decidable(self) -> bool:
        """Whether a document could fit all unexplained updates."""
        return self.missing_at is None and all(misfit.needs for misfit in self.misfits.values())

    def fits(self, document: bytes) -> bool:
        return all(misfit.fits(document) for misfit in self.misfits.values())

    @property
    def size(self) -> int:
        return _ENTRY_BYTES + len(self.change.key) + sum(_ENTRY_BYTES + len(names) for names in self.misfits)


_ENTRY_BYTES = 512
"""An upper bound for the memory of an entry without its bytes."""


class Unexplained:
    """The unexplained updates of one run. Its callers pass the changes of a key in order."""

    def __init__(self) -> None:
        self.unsettled: set[TableId] = set()
        """Tables known to be unsettled: their skipped changes need not be remembered."""
        self._rows: dict[tuple[TableId, bytes], OpenRow] = {}
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._rows)

    def missing(self, change: RowChange, reason: str = MISSING) -> None:
        if change.table.id in self.unsettled:
            return
        with self._weighed(change):
            self._row(change, reason).missing_at = _place(change)

    def misfit(self, change: RowChange, reason: str) -> None:
        if change.table.id in self.unsettled:
            return
        needs = _needs(change.update or b"")
        with self._weighed(change):
            self._row(change, reason).misfits[_names(needs, change)] = _Misfit(_place(change), needs)

    def doubted(self, change: RowChange) -> None:
        """Adds a change that was applied as far as it fitted; the server did not report whether it fitted."""
        if change.type is RowType.UPDATE and _needs(change.update or b""):
            self.misfit(change, "it was applied together with others")

    def explain(self, changes: Iterable[RowChange]) -> None:
        """Removes what these changes explain; they have been applied, or wait. Only a change after an update explains it."""
        if not self._rows:
            return
        for change in changes:
            row = self._rows.get(change.row)
            if row is not None:
                with self._weighed(change):
                    if _explained(row, change):
                        del self._rows[change.row]

    def take(self) -> list[OpenRow]:
        """Removes and returns all unexplained rows, in the order in which they were added."""
        rows, self._rows, self.bytes = self._rows, {}, 0
        return list(rows.values())

    def _row(self, change: RowChange, reason: str) -> OpenRow:
        row = self._rows.setdefault(change.row, OpenRow(change, reason))
        row.change, row.reason = change._replace(update=None, document=None), reason
        return row

    @contextmanager
    def _weighed(self, change: RowChange) -> Iterator[None]:
        identity = change.row
        before = self._rows.get(identity)
        self.bytes -= before.size if before else 0
        yield
        after = self._rows.get(identity)
        self.bytes += after.size if after else 0


def _explained(row: OpenRow, change: RowChange) -> bool:
    """Whether nothing of the row is left unexplained."""
    place = _place(change)
    whole = change.type is not RowType.UPDATE
    if whole and row.missing_at is not None and row.missing_at < place:
        row.missing_at = None
    touched = frozenset() if whole or not row.misfits else frozenset(_touched(change.update or b""))
    for names, misfit in list(row.misfits.items()):
        if misfit.place >= place:
            continue
        left = {name: need for name, need in misfit.needs.items() if not need.ground & touched}
        if whole or (misfit.needs and not left):
            del row.misfits[names]
        else:
            misfit.needs = left
    return row.missing_at is None and not row.misfits


def _needs(update: bytes) -> dict[str, _Need]:
    found: dict[str, _Need] = {}
    paths: Mapping[str, list[str | int]] = raw_document(update).get("disambiguatedPaths") or {}
    for kind, name in _parts(update):
        given = paths.get(name)
        parts = [str(part) for part in given] if given else name.split(".")
        upto = len(parts) + (kind == "truncated")
        ground = frozenset(".".join(parts[:count]) for count in range(1, upto))
        if ground:
            found[name] = _Need(kind, ground, list(given) if given else None)
    return found


def _touched(update: bytes) -> Iterator[str]:
    return (name for _, name in _parts(update))


def _parts(update: bytes) -> Iterator[tuple[str, str]]:
    raw = raw_document(update)
    yield from (("set", name) for name in updated_names(update))
    yield from (("removed", name) for name in raw.get("removedFields") or ())
    yield from (("truncated", array["field"]) for array in raw.get("truncatedArrays") or ())


def _names(needs: Mapping[str, _Need], change: RowChange) -> bytes:
    """An update without needs gets a unique name, from its place: no condition can decide later whether it fits."""
    if not needs:
        return b"%d %s" % _place(change)
    return "\0".join(f"{need.kind} {name}" for name, need in needs.items()).encode()


def _place(change: RowChange) -> _Place:
    return change.time, change.token
