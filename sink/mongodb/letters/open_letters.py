"""`OpenLetters`: the open letters of the tables that one run meets, and the rows that they hold.

While a letter of a row is open, the target's row is not what the source's changes build on. So a run sets all changes of the row aside and,
at its end, writes the source's document of now:

    no letter ──refused──▶ open ──a change comes──▶ held ──end of the run──▶ tried ──accepted, durable──▶ no letter
                             ▲                                                 │
                             └──────────────── refused: renewed ───────────────┘

A worked example, in which a unique index at the target refuses `u: 1`:

    5  insert x: u = 1          refused: x has a letter
    6  update x: n = 2          held
    7  insert y                 written
       end of the run           the source has x: {u: 3, n: 2} by now; it is written, the letter is closed
    8  update x: u = 3          a replay: x was read after 8

Where rows may not be repaired, a *note* says until its table has passed that time when such a row was read: an earlier change that does not fit
is no divergence then, on whichever node. A replay alone does not tell it: another node does not know how far it goes, and a table that a DDL
holds cannot wait for the change that explains it.

Why nothing is lost, whatever ends between two steps:

- A letter is on a majority before its change counts as handled. It is closed only after the row and its note are on a majority.
- A run that ends too early has closed no letter. Its window is replayed, and its changes are held again.
- A user may delete letters while a run holds them. The run writes the source's documents all the same, or makes new letters; closing
  a letter that is gone does nothing. The next run reads the letters again.
- The tasks of a wide window have different rows. Each counts the letters that it has seen, so a table may get a few more than the limit.
- A request to try a row again is deleted only if it is still the one that was seen, so a later request is not lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar

import bson

from changefeed.cluster_time import ClusterTime
from changefeed.errors import RowRejected, SinkRefused
from changefeed.event import RowType
from changefeed.table import COPY_ANEW, TableId, TableName
from sink.mongodb.commander import Commander
from sink.mongodb.letters.dead_letter import (
    MOST_LETTERS,
    Kept,
    beginning_with,
    id_of,
    ids_of,
    letter_update,
    note_update,
    row_of,
    table_and_row,
)
from sink.row import FetchRow, RowChange, Sole, SoleTable

_TABLES_AT_ONCE = 50
_CLOSED_AT_ONCE = 1_000
_REQUESTS = 5_000
_TRIED_AT_ONCE = 200
"""A run tries no more rows at users' requests, so that it stays short; the next run goes on."""
_BATCH = 100_000

_Row: TypeAlias = tuple[TableId, str]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterBox:
    """Where one changefeed keeps its letters. A table stops rather than have more than `most` open ones."""

    collection: TableName
    changefeed: str
    most: int = MOST_LETTERS


class _Tried(NamedTuple):
    """`read_ts`: when the row was read from the source; None if a change was written as it came."""

    read_ts: ClusterTime | None


@dataclass(slots=True)
class OpenLetters:
    """`fetch` None: nothing can be read from the source. Then whole documents and deletes are tried as they come, updates stay held.

    `notes`: whether it is noted when a row was read.
    """

    commander: Commander
    box: LetterBox
    fetch: FetchRow | None
    notes: bool = False
    _noted: dict[_Row, ClusterTime] = field(default_factory=dict)
    """Of the tables that the run has met."""
    _open: dict[TableId, set[str]] = field(default_factory=dict)
    """The rows that have a letter and have not been tried since, by table. Only tables that the run has met."""
    _held: dict[_Row, RowChange] = field(default_factory=dict)
    """Of each row whose changes were set aside the newest one, without its content."""
    _tried: dict[_Row, _Tried] = field(default_factory=dict)
    """Rows that have a letter, and are written or wait. They are closed at the end of the run."""
    _requests: list[Mapping[str, Any]] = field(default_factory=list)

    def meet(self, tables: Iterable[TableId]) -> None:
        """Reads the letters of the tables that the run has not met yet. It must be called before their changes are written."""
        new = sorted(set(tables) - self._open.keys())
        for part in parts(new, _TABLES_AT_ONCE):
            prefixes = [ids_of(self.box.changefeed, Kept.LETTER, table) for table in part]
            prefixes += [ids_of(self.box.changefeed, Kept.NOTE, table) for table in part] if self.notes else []
            self._open.update((table, set()) for table in part)
            ranges = {"$or": [{"_id": beginning_with(prefix)} for prefix in prefixes]}
            find = self._find(ranges, {"_id": 1, "read": 1})
            for found in map(_decoded, self.commander.found(find, "reading the open dead letters")):
                table, row = table_and_row(found["_id"])
                if "read" in found:
                    self._noted[table, row] = ClusterTime.from_bson(found["read"])
                else:
                    self._open[table].add(row)

    @property
    def any_open(self) -> bool:
        return any(self._open.values())

    def holds(self, change: RowChange) -> bool:
        """Whether the change must not be sent. It is remembered then."""
        rows = self._open.get(change.table.id)
        if not rows or (row := row_of(change.key)) not in rows:
            return False
        if self.fetch is None and change.type is not RowType.UPDATE:
            self._try(change, None)
            return False
        self._held[change.table.id, row] = change._replace(type=RowType.UPDATE, document=None, update=None)
        return True

    def explains(self, change: RowChange) -> bool:
        """Whether the row may be newer than the change, since it was written as it was at the source."""
        noted = self._noted.get(_row(change)) if self._noted else None
        return noted is not None and change.time <= noted.to_int()

    def rows_of_now(self) -> Iterator[tuple[RowChange, ClusterTime]]:
        """The held rows as the source has them now, each with the time at which it was read. A row counts as tried when it is given; a table that the source has dropped has none."""
        held, self._held = self._held, {}
        for change in held.values() if self.fetch is not None else ():
            found = self.fetch(change) if self.fetch is not None else None
            if found is None:
                continue
            self._try(change, found.read_ts)
            yield change.as_now(found), found.read_ts

    def tries(self, change: RowChange) -> bool:
        return bool(self._tried) and _row(change) in self._tried

    def leave(self, change: RowChange) -> None:
        """The row was tried, and it is not known yet whether it fits: its letter stays as it is."""
        self._tried.pop(_row(change), None)

    def newer(self) -> dict[TableId, ClusterTime]:
        """The tables with rows that were written as the source has them now, each with the latest time at which one was read."""
        found: dict[TableId, ClusterTime] = {}
        for (table, _), tried in self._tried.items():
            if tried.read_ts is not None:
                found[table] = max(tried.read_ts, found.get(table, tried.read_ts))
        return found

    def write(self, change: RowChange, said: str) -> None:
        """Opens the letter of a refused row, or renews it."""
        self.meet([change.table.id])
        table, row = _row(change)
        rows = self._open[table]
        if row not in rows and (table, row) not in self._tried and self._full(table):
            raise self._too_many(change, said).about(table)
        statement = letter_update(self.box.changefeed, change, said)
        command = {"update": self.box.collection.coll, "updates": [statement], "writeConcern": {"w": "majority"}}
        reply = self.commander.send(self.box.collection.db, command, f"dead letter of {change}").document
        if errors := reply.get("writeErrors"):
            refused = (
                f"{said}; and {self.box.collection} refuses the dead letter: {errors[0].get('errmsg')}; remove the cause there, and resume the "
                "table"
            )
            raise RowRejected(refused).about(table)
        self.commander.go_on()
        self._tried.pop((table, row), None)
        rows.add(row)

    def close(self) -> None:
        """Closes the letters of the rows that were tried and not refused. Their rows must be durable."""
        read = [(row, tried.read_ts) for row, tried in self._tried.items() if tried.read_ts is not None]
        for some in parts(read if self.notes else [], _CLOSED_AT_ONCE):
            self._note(some)
        written = [id_of(self.box.changefeed, Kept.LETTER, *row) for row in self._tried]
        for part in parts(written, _CLOSED_AT_ONCE):
            self._delete([{"_id": {"$in": part}}], f"closing {len(part)} dead letters")
        self._tried = {}
        for requests in parts(self._requests, _CLOSED_AT_ONCE):
            self._delete(requests, "ending requests for dead letters")
        self._requests = []

    def end_notes(self, sole: Sole) -> None:
        """Those of rows whose table has passed the time at which they were read."""
        starts = {table: place.start.ts for table, _ in self._noted if (place := sole(table)) is not None}
        over = [row for row, noted in self._noted.items() if row[0] in starts and noted < starts[row[0]]]
        for part in parts(over, _CLOSED_AT_ONCE):
            ids = [id_of(self.box.changefeed, Kept.NOTE, *row) for row in part]
            self._delete([{"_id": {"$in": ids}}], f"ending {len(part)} notes of rows with dead letters")

    def hold_requested(self, sole: Sole) -> None:
        """Holds the rows that a user wants to be tried again, of tables that `sole` gives. Does nothing while the target does not answer."""
        changefeed = self.box.changefeed
        wanted: dict[str, tuple[Mapping[str, Any], SoleTable]] = {}
        found = self.commander.glance(
            self._find({"_id": beginning_with(ids_of(changefeed, Kept.REQUEST))}, limit=_REQUESTS), "reading requests"
        )
        for request in map(_decoded, found or ()):
            table, row = table_and_row(request["_id"])
            if (place := sole(table)) is not None and len(wanted) < _TRIED_AT_ONCE:
                wanted[id_of(changefeed, Kept.LETTER, table, row)] = request, place
        if not wanted:
            return
        self.meet(place.table.id for _, place in wanted.values())
        keys = self._keys(list(wanted))
        for id, (asked, place) in wanted.items():
            table, row = table_and_row(id)
            if row not in self._open[table] and (table, row) not in self._tried:
                self._requests.append(asked)  # the letter is closed or dropped
            elif id in keys:
                self._requests.append(asked)
                self._held.setdefault((table, row), place.row(keys[id]))

    def _keys(self, ids: Sequence[str]) -> dict[str, bytes]:
        find = self._find({"_id": {"$in": ids}}, {"event.key": 1})
        found = map(_decoded, self.commander.found(find, f"reading {len(ids)} dead letters"))
        return {letter["_id"]: letter["event"]["key"] for letter in found if "key" in letter.get("event", {})}

    def _ids(self, condition: Mapping[str, Any]) -> Iterator[str]:
        for found in self.commander.found(self._find(condition, {"_id": 1}), "reading the open dead letters"):
            yield _decoded(found)["_id"]

    def _find(
        self, condition: Mapping[str, Any], projection: Mapping[str, int] | None = None, *, limit: int = _BATCH
    ) -> tuple[str, dict[str, Any]]:
        command = {"find": self.box.collection.coll, "filter": condition, "batchSize": limit, "limit": limit}
        command |= {"singleBatch": True, "readConcern": {"level": "local"}}
        return self.box.collection.db, command if projection is None else {**command, "projection": projection}

    def _note(self, rows: Sequence[tuple[_Row, ClusterTime]]) -> None:
        statements = [note_update(self.box.changefeed, *row, read_ts) for row, read_ts in rows]
        command = {"update": self.box.collection.coll, "updates": statements, "writeConcern": {"w": "majority"}}
        doing = f"noting when {len(rows)} rows were read"
        reply = self.commander.send(self.box.collection.db, command, doing).document
        if errors := reply.get("writeErrors"):
            raise SinkRefused(
                f"{doing}: {self.box.collection} refuses it: {errors[0].get('errmsg')}; remove the cause there"
            )

    def _delete(self, conditions: Sequence[Mapping[str, Any]], doing: str) -> None:
        deletes = [{"q": condition, "limit": 0} for condition in conditions]
        command = {"delete": self.box.collection.coll, "deletes": deletes, "writeConcern": {"w": "majority"}}
        self.commander.send(self.box.collection.db, command, doing)

    def _try(self, change: RowChange, read_ts: ClusterTime | None) -> None:
        table, row = _row(change)
        self._open[table].discard(row)
        self._tried[table, row] = _Tried(read_ts)

    def _count(self, table: TableId) -> int:
        return len(self._open[table]) + sum(1 for tried, _ in self._tried if tried == table)

    def _full(self, table: TableId) -> bool:
        """Letters that a user wants to be tried again do not count: the run tries them only after the changes."""
        count = self._count(table)
        if count < self.box.most:
            return False
        requested = beginning_with(ids_of(self.box.changefeed, Kept.REQUEST, table))
        return count >= self.box.most + sum(1 for _ in self._ids({"_id": requested}))

    def _too_many(self, change: RowChange, said: str) -> RowRejected:
        source, changefeed = change.table.source, self.box.changefeed
        return RowRejected(
            f"{said}; and {source} has {self._count(change.table.id):,} open dead letters in {self.box.collection}, where {self.box.most:,} "
            f"are allowed. Remove the cause; `sluice table rejected {changefeed} {source}` lists them, `sluice table retry-rejected` and "
            f"`sluice table drop-rejected` end them; then resume the table (`sluice table resume {changefeed} {source}`), or "
            f"{COPY_ANEW}"
        )


def _row(change: RowChange) -> _Row:
    return change.table.id, row_of(change.key)


def parts(items: Sequence[_T], most: int) -> Iterator[Sequence[_T]]:
    return (items[at : at + most] for at in range(0, len(items), most))


def _decoded(found: Any) -> dict[str, Any]:
    return bson.decode(bytes(found.raw))
