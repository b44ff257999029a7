"""`Placing`: where the changes of a run go at a target that shards its tables, whatever the source's shard keys are.

Nobody else asks whether a table is sharded at the target. `row_place.py` says where a change goes once the target has said where it has the
row; `Placing` asks the target, and moves rows whose place changes. DDL has the like of it in `ddl/table_spread.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import bson

from changefeed.documents.document import raw_document
from changefeed.documents.row_key import id_alone, row_key
from changefeed.errors import RowRejected, SinkRefused, SinkUnavailable
from changefeed.event import RowType
from changefeed.table import COPY_ANEW
from sink.mongodb.commander import Commander, Send
from sink.mongodb.refusal import RefusedRow, told
from sink.mongodb.rows.bulk_command import exchange_commands, found_command
from sink.mongodb.rows.bulk_plan import Batch, Limits
from sink.mongodb.rows.row_look import RowsAtSource
from sink.mongodb.rows.row_place import (
    Move,
    RowQuery,
    as_written,
    is_looked_for,
    key_of_document,
    of_different_rows,
    own_filter,
    place,
    places_command,
    spread,
)
from sink.mongodb.rows.statements.document_edit import changed
from sink.mongodb.target_errors import refusal_in, refused_with
from sink.row import FetchRow, RowChange, SourceRow, TargetTable

_ID = "_id"
_LOOKED_FOR = 1_000
"""Rows in one query whose reply has their whole keys."""
_ORPHAN = (
    "a moved chunk has left a document of this _id on the shard, which will remove it (after orphanCleanupDelaySecs, by default 15 minutes); "
    "cleanupOrphaned on the shard's primary waits for that"
)
_REMEDY = (
    "has several documents of its _id, with different shard keys, of which Sluice keeps one: leave one at the source, if it has several, too, then "
    + COPY_ANEW
)


class Placing:
    """Where the changes of one run go. Without shards, and in a table that the target does not shard, the `_id` says where a row is."""

    def __init__(
        self, commander: Commander, beside: Commander, limits: Callable[[], Limits], source: RowsAtSource
    ) -> None:
        """`beside` reads shard keys while `commander` writes rows."""
        self._commander = commander
        self._keys = _ShardKeys(beside)
        self._limits = limits
        self._source = source

    def known(self, changes: Sequence[RowChange]) -> Sequence[RowChange]:
        """The changes, of tables with the shard keys that they have at the target."""
        return self._keys.known(changes) if self._limits().router else changes

    def spreads(self, table: TargetTable) -> bool:
        """Whether the target has the table on several shards."""
        return spread(self.known([RowChange(table, RowType.DELETE, b"", None, None, 0, b"")])[0].table)

    def places(self, batch: Batch) -> bool:
        """Whether rows of the batch are looked for before it is sent. A batch for a router is of one table."""
        return bool(batch.changes) and spread(batch.changes[0].table)

    def unplaced(self, batch: Batch) -> Batch | None:
        """The batch, if its changes have to be placed, with the target's shard key."""
        if batch.placed or not batch.changes or not self._limits().router:
            return None
        known = replace(batch, changes=self.known(batch.changes))
        return known if self.places(known) else None

    def anywhere(self, change: RowChange) -> RowChange:
        """The change without the shard key that its event had: wherever the target has the row."""
        return change._replace(key=id_alone(change.key)) if self._limits().router else change

    def steps(self, batch: Batch, *, replay: bool, unsure: Callable[[RowChange], bool]) -> Iterator[Batch | Move]:
        """Parts of the batch whose changes have whole keys, and moves, in order. Each is to be applied before the next is asked for. Few changes
        need a look for their row. `unsure`: other changes of the row wait, which may leave it elsewhere.
        """
        written = (as_written(change, replay=replay) for change in batch.changes)
        changes = (change._replace(key=id_alone(change.key)) if unsure(change) else change for change in written)
        for part in of_different_rows(changes):
            wanted = [change for change in part if is_looked_for(change)]
            there = self._places(wanted)
            for change in wanted:
                if len(there.get(row_key(change.key), ())) > 1:
                    self._found_twice(change)
            ready: list[RowChange] = []
            for change in part:
                placed = place(change, there.get(row_key(change.key), ()))
                if isinstance(placed, Move):
                    yield replace(batch, changes=ready, command=None, placed=True)
                    ready = []
                    yield placed
                else:
                    ready += placed
            yield replace(batch, changes=ready, command=None, placed=True)

    def move(self, change: RowChange) -> RefusedRow | None:
        """An orphan, which a moved chunk leaves on a shard until the shard has cleaned up, refuses its `_id` there, and no read finds it."""
        attempt = 0
        while True:
            try:
                self.exchange(change.table, [[change]], str(change))
            except RowRejected as error:
                refusal = refusal_in(error)
                if refusal is None or not refusal.duplicate_id:
                    return refused_with(change, error)
                self._commander.wait(attempt, SinkUnavailable(f"{told(change, refusal)}; {_ORPHAN}"))
                attempt += 1
            else:
                return None

    def exchange(self, table: TargetTable, rows: Sequence[Sequence[RowChange]], doing: str) -> None:
        """Removes rows, and inserts them as their changes leave them, in one transaction. Raises `RowRejected` if the target refuses one."""
        self._commander.together(partial(_exchanged, table, rows), doing)

    def _places(self, changes: Sequence[RowChange]) -> dict[bytes, list[bytes]]:
        """The whole keys under which a router has the rows of the changes, which are of one table. Rows that it does not have are left out."""
        there: dict[bytes, list[bytes]] = {}
        for at in range(0, len(changes), _LOOKED_FOR):
            part = changes[at : at + _LOOKED_FOR]
            for document in self._commander.found(places_command(part), f"looking for {len(part)} rows"):
                raw = bytes(document.raw)
                there.setdefault(row_key(raw), []).append(key_of_document(raw, part[0].table.shard_key))
        return there

    def _found_twice(self, change: RowChange) -> None:
        if not self._source.expects_one(change):
            raise RowRejected(f"{change}: {change.table.name} {_REMEDY}").about(change.table.id)


class _ShardKeys:
    """For one run: a table that is made anew is another `TargetTable`. For several threads."""

    def __init__(self, commander: Commander) -> None:
        self._commander = commander
        self._known: dict[TargetTable, TargetTable] = {}
        self._reading = threading.Lock()

    def known(self, changes: Sequence[RowChange]) -> Sequence[RowChange]:
        """The changes, of tables with their shard keys."""
        with self._reading:
            new = {change.table for change in changes} - self._known.keys()
            if new:
                self._read(new)
            known = self._known
            return [change._replace(table=known[change.table]) for change in changes]

    def _read(self, tables: set[TargetTable]) -> None:
        self._commander.begin()
        names = sorted({str(table.name) for table in tables})
        find = {
            "find": "collections",
            "filter": {"_id": {"$in": names}},
            "batchSize": len(names) + 1,
            "singleBatch": True,
        }
        found = self._commander.found(("config", find), f"reading the shard keys of {len(names)} tables of the target")
        entries = {entry["_id"]: entry for entry in (bson.decode(bytes(each.raw)) for each in found)}
        for table in tables:
            placed = replace(table, shard_key=shard_key_of(entries.get(str(table.name))))
            self._known[table] = self._known[placed] = placed


def shard_key_of(entry: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The fields besides `_id` of an entry of `config.collections`. Empty: the `_id` says where a row is."""
    if entry is None or entry.get("dropped") or entry.get("unsplittable"):
        return ()
    if entry.get("defaultCollation"):
        raise SinkRefused(
            f"{entry['_id']}: it is sharded at the target and has a collation, under which a router does not find one row by its shard key; "
            f"drop it there, create it without sharding it, then {COPY_ANEW}"
        )
    return tuple(path for path in entry["key"] if path != _ID)


def _exchanged(table: TargetTable, rows: Sequence[Sequence[RowChange]], send: Send) -> None:
    """`rows`: the changes of each row. All are removed before one is inserted: the values of a unique index may change hands."""
    filters: list[RowQuery] = []
    documents: list[tuple[RowQuery, bytes]] = []
    for changes in rows:
        places = _places(changes[0], send)
        filters += places
        for document in _foretold(changes, places, send):
            place = raw_document(key_of_document(document, table.shard_key)) if table.shard_key else places[0]
            documents.append((place, document))
    for command in exchange_commands(table, filters, documents):
        reply = send(table.name.db, command)
        if table.shard_key and "delete" in command and reply["n"] != 1:
            raise SinkUnavailable(
                f"{table.name}: a document that is to move was on its way to another shard; it is looked for again"
            )


def _places(change: RowChange, send: Send) -> list[RowQuery]:
    if not change.table.shard_key:
        return [own_filter(change)]
    found = send(*places_command([change]))["cursor"]["firstBatch"]
    return [raw_document(key_of_document(bytes(document.raw), change.table.shard_key)) for document in found]


def _foretold(changes: Sequence[RowChange], places: Sequence[RowQuery], send: Send) -> list[bytes]:
    """Nothing if there is no document that the changes could change."""
    table = changes[0].table
    found = send(table.name.db, found_command(table, places[0]))["cursor"]["firstBatch"] if places else []
    there = bytes(found[0].raw) if found else None
    document = changed(there, [(change.document, change.update) for change in changes])
    return [] if document is None else [document]


def by_id_alone(fetch: FetchRow) -> FetchRow:
    """The source knows nothing of the shard key that the target has."""

    def fetched(change: RowChange) -> SourceRow | None:
        return fetch(change._replace(key=id_alone(change.key)) if spread(change.table) else change)

    return fetched
