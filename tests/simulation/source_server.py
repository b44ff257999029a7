"""`SourceServer`: a replica set in memory. What is written becomes an oplog; what a majority has of it, streams and snapshots show.

A batch of writes has one cluster time as often as not, as a transaction has, so time alone does not order events. A batch is shown
as a whole, some moments after it was written. Tokens have the shape that real servers give them. A new primary knows of less than its
predecessor has told, until a majority has what it writes first.

What it does is what real servers do: `tests/component/simulation/` asks both.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import bson
from bson.binary import Binary
from pymongo.errors import NetworkTimeout

from changefeed.cluster_time import ClusterTime
from changefeed.event import DdlType
from changefeed.position import Position
from changefeed.table import TableId, TableName
from tests.simulation.machine import Machine
from tests.simulation.substitutes import Waiters

FIRST_SECOND = 1_795_000_000
NOTE_EVERY = 10.0
"""Seconds between two looks of a primary whether it has been idle."""
_CLIENT_WAITS = 30.0
_NEVER = ClusterTime(0, 0)
ID_INDEX: Mapping[str, Any] = {"v": 2, "key": {"_id": 1}, "name": "_id_"}

Row = dict[str, Any]


class NotPossible(Exception):
    """The server refuses this write; nothing has happened. `code` is the server's."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Build:
    """Of an index, from its start to its commit; what is written meanwhile is shown before it."""

    table: Table
    spec: dict[str, Any]
    uuid: bytes
    going: bool = True


@dataclass
class Table:
    id: TableId
    name: TableName
    options: dict[str, Any] = field(default_factory=dict)
    indexes: dict[str, dict[str, Any]] = field(default_factory=lambda: {"_id_": dict(ID_INDEX)})
    building: dict[str, Build] = field(default_factory=dict)
    rows: dict[Any, Row] = field(default_factory=dict)
    history: list[tuple[Position, Any, Row | None]] = field(default_factory=list)
    """What became of each key, in order."""
    named_at: ClusterTime = _NEVER
    """When it came to stand under its name: no snapshot of before shows it."""

    def rows_at(self, ts: ClusterTime) -> dict[Any, Row]:
        found: dict[Any, Row] = {}
        for position, key, row in self.history:
            if position.ts > ts:
                break
            if row is None:
                found.pop(key, None)
            else:
                found[key] = row
        return found


@dataclass(frozen=True)
class Entry:
    """Of the oplog; a note has no event."""

    ts: ClusterTime
    position: Position
    raw: bytes | None = None
    header: Mapping[str, str | None] = field(default_factory=dict)
    """What a `$match` looks at."""
    before: Row | None = None
    after: Row | None = None

    def with_images(self) -> bytes:
        assert self.raw is not None
        event: dict[str, Any] = bson.decode(self.raw)
        if self.after is not None:
            event["fullDocument"] = self.after
        if self.before is not None:
            event["fullDocumentBeforeChange"] = self.before
        return bson.encode(event)


@dataclass(frozen=True)
class Ddl:
    """One DDL as it happened, for those who judge: ids and names touched, at the source."""

    position: Position
    type: DdlType
    ids: frozenset[TableId]
    names: frozenset[TableName]
    dropped: frozenset[TableId] = frozenset()
    to: TableName | None = None


class SourceServer:
    def __init__(self, machine: Machine, *, note_every: float = NOTE_EVERY) -> None:
        self.machine = machine
        self._note_every = note_every
        self.tables: dict[TableName, Table] = {}
        self.by_id: dict[TableId, Table] = {}
        self.oplog: list[Entry] = []
        self.visible = 0
        """So many entries are shown: those that the majority has, as far as the primary knows."""
        self.commits: list[tuple[float, int]] = []
        """When how much of the oplog had become visible."""
        self._has = 0
        self._still_until = 0.0
        self.ddls: list[Ddl] = []
        self.versions: dict[int, Row] = {}
        self.version_at: dict[int, tuple[TableId, Position]] = {}
        self.shown: dict[bytes, dict[Position, bool]] = {}
        """By query: which entries it shows."""
        self.changed = Waiters()
        self.election = 1
        self.oldest = ClusterTime(0, 0)
        """What is older is forgotten."""
        self.slow_reads = 0.0
        """Seconds that the next documents of a table may take."""
        self.slow_scan = 0.0
        """Seconds that a stream takes for each entry of the oplog."""
        self._batch: tuple[ClusterTime, int] | None = None
        self._shared_time = False
        self._last = ClusterTime(FIRST_SECOND, 0)
        self._made = 0
        self.last_event = Position(self._last)
        self.note()
        self._write_periodic_note()

    def take_time(self) -> None:
        if self.slow_reads and self.machine.random.random() < 0.5:
            self.machine.count("fault: slow reads of a table")
            self.machine.sleep(self.machine.random.random() * self.slow_reads)

    # time

    @property
    def newest(self) -> ClusterTime:
        return self.oplog[-1].ts if self.oplog else self._last

    @property
    def committed(self) -> ClusterTime:
        return self.oplog[self.visible - 1].ts if self.visible else ClusterTime(FIRST_SECOND, 0)

    @property
    def end(self) -> Position:
        return Position(self.newest.next())

    def _tick(self) -> ClusterTime:
        second = FIRST_SECOND + int(self.machine.now)
        later = ClusterTime(second, 1)
        self._last = max(later, self._last.next())
        return self._last

    @contextmanager
    def batch(self, *, shared_time: bool) -> Iterator[None]:
        """Shown as a whole; with one cluster time for all, if wanted."""
        self._batch = (self._tick(), 0)
        self._shared_time = shared_time
        try:
            yield
        finally:
            self._batch = None
            self._commit_later(len(self.oplog))

    def _commit_later(self, upto: int) -> None:
        def commit() -> None:
            self._has = max(self._has, upto)
            self._show()

        self.machine.after(self.machine.random.choice((0.0005, 0.002, 0.02)), commit)

    def hold_majority(self, until: float) -> None:
        """Until then it has nothing new."""
        self._still_until = until
        if until > self.machine.now:
            self.machine.after(until - self.machine.now, self._show)
        else:
            self._show()

    def wait_for_majority(self) -> None:
        """As long as it takes, for all that has been written; its client gives up earlier."""
        written, deadline = len(self.oplog), self.machine.now + _CLIENT_WAITS
        while self.visible < written:
            if self.machine.now >= deadline:
                raise NetworkTimeout("timed out")
            self.changed.wait(deadline)

    def _show(self) -> None:
        if self.machine.now >= self._still_until:
            self._primary_shows(max(self.visible, self._has))
            self.changed.wake_all()

    def _primary_shows(self, upto: int) -> None:
        self.visible = upto
        self.commits.append((self.machine.now, upto))

    def elect(self) -> None:
        """The new primary may be behind what the old one has told. Cursors stay where they were."""
        self.election += 1
        self._primary_shows(max(1, self.visible - self.machine.random.choice((0, 1, 3, 10))))
        self.note()
        self.hold_majority(self.machine.now + self.machine.random.choice((0.0, 0.05, 1.0)))

    def forget(self) -> None:
        """All but the newest entry, as far as anybody can ask for it."""
        self.oldest = self.newest

    def note(self) -> None:
        ts = self._tick()
        self.oplog.append(Entry(ts, Position(ts)))
        self._commit_later(len(self.oplog))

    def _write_periodic_note(self) -> None:
        """As every primary does that has written nothing since it looked last."""
        if FIRST_SECOND + self.machine.now - self.newest.seconds >= self._note_every:
            self.note()
        self.machine.after(self._note_every, self._write_periodic_note)

    # events

    def _place(self, table: Table | None) -> Position:
        assert self._batch is not None, "writes belong to a batch"
        ts, place = self._batch
        if place and not self._shared_time:
            ts, place = self._tick(), 0
        self._batch = (ts, place + 1)
        number = "29" if place == 0 else f"2B{2 * place:02X}"
        whose = f"5A1004{table.id.upper()}" if table else "14"
        return Position(ts, f"82{ts.to_int():016X}2B042C0100{number}6E{whose}04")

    def _emit(self, kind: str, name: TableName | str, table: Table | None, **fields: Any) -> Position:
        position = self._place(table)
        ns = {"db": name.db, "coll": name.coll} if isinstance(name, TableName) else {"db": name}
        full = {"fullDocument": fields.pop("fullDocument")} if "fullDocument" in fields else {}
        before, after = fields.pop("before", None), fields.pop("after", None)
        event: dict[str, Any] = {
            "_id": {"_data": position.token},
            "operationType": kind,
            "clusterTime": position.ts.to_bson(),
            **({"collectionUUID": Binary(bytes.fromhex(table.id), 4)} if table else {}),
            "wallTime": datetime.fromtimestamp(position.ts.seconds, UTC),
            **full,
            "ns": ns,
            **fields,
        }
        header = {"operationType": kind, "ns.db": ns["db"], "ns.coll": ns.get("coll")}
        self.oplog.append(Entry(position.ts, position, bson.encode(event), header, before, after))
        self.last_event = position
        self.machine.note("source", _Shown(kind, name, fields, position))
        return position

    def _ddl(
        self,
        kind: DdlType,
        position: Position,
        ids: set[TableId],
        names: set[TableName],
        dropped: set[TableId] | None = None,
        to: TableName | None = None,
    ) -> None:
        self.ddls.append(Ddl(position, kind, frozenset(ids), frozenset(names), frozenset(dropped or ()), to))

    # DDL

    def create(self, name: TableName, options: dict[str, Any] | None = None) -> Table:
        if name in self.tables:
            raise NotPossible(f"{name} exists", 48)
        self._made += 1
        id = TableId(uuid.UUID(int=self.machine.random.getrandbits(128), version=4).hex)
        table = Table(id=id, name=name, options=options or {})
        self.tables[name] = self.by_id[id] = table
        at = self._emit("create", name, table, operationDescription={**table.options, "idIndex": dict(ID_INDEX)})
        table.named_at = at.ts
        self._ddl(DdlType.CREATE, at, {id}, {name})
        return table

    def create_index(self, name: TableName, spec: dict[str, Any]) -> Build | None:
        """Done at once where there are no rows; otherwise a build that `commit_index` ends."""
        table = self._known(name)
        alike = [each for each in self._specs(table) if each["name"] == spec["name"] or each["key"] == spec["key"]]
        for there in alike:
            self._refuse_another(there, spec)
        if alike:
            return None
        if not table.rows:
            self._index_built(table, spec)
            return None
        build = Build(table, spec, uuid.UUID(int=self.machine.random.getrandbits(128), version=4).bytes)
        table.building[spec["name"]] = build
        self._unseen_entry()
        return build

    @staticmethod
    def _refuse_another(there: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        unlike = there["key"] != spec["key"] or there.get("unique", False) != spec.get("unique", False)
        if there["name"] == spec["name"]:
            if unlike:
                raise NotPossible("an index of this name is there, and another", 86)
        elif not unlike:
            raise NotPossible("the index is there under another name", 85)

    def commit_index(self, build: Build) -> None:
        """Refuses, and ends the build, where two rows have what only one may have."""
        if not build.going:
            raise NotPossible("the build was given up", 276)
        self._end_build(build)
        if build.spec.get("unique"):
            field_name = next(iter(build.spec["key"]))
            values = [row.get(field_name) for row in build.table.rows.values()]
            if len(set(values)) < len(values):
                self._unseen_entry()
                raise NotPossible("duplicates", 11000)
        self._index_built(build.table, build.spec)

    @property
    def building(self) -> bool:
        return any(table.building for table in self.tables.values())

    def _specs(self, table: Table) -> list[dict[str, Any]]:
        return [*table.indexes.values(), *(build.spec for build in table.building.values())]

    def _index_built(self, table: Table, spec: dict[str, Any]) -> None:
        table.indexes[spec["name"]] = spec
        at = self._emit("createIndexes", table.name, table, operationDescription={"indexes": [spec]})
        self._ddl(DdlType.CREATE_INDEXES, at, {table.id}, {table.name})

    def _end_build(self, build: Build) -> None:
        build.going = False
        del build.table.building[build.spec["name"]]

    def _unseen_entry(self) -> None:
        """Of a build that begins or is given up: no stream shows it."""
        position = self._place(None)
        self.oplog.append(Entry(position.ts, position))

    def _refuse_while_building(self, table: Table | None) -> None:
        if table is not None and table.building:
            raise NotPossible("an index build is running", 12587)

    def drop_index(self, name: TableName, index: str) -> None:
        """One that is being built is given up, and nobody hears of it."""
        table = self._known(name)
        if index in table.building:
            self._end_build(table.building[index])
            self._unseen_entry()
            return
        if index == "_id_":
            raise NotPossible("cannot drop _id index", 72)
        if index not in table.indexes:
            raise NotPossible("no such index", 27)
        spec = table.indexes.pop(index)
        at = self._emit("dropIndexes", name, table, operationDescription={"indexes": [spec]})
        self._ddl(DdlType.DROP_INDEXES, at, {table.id}, {name})

    def modify(self, name: TableName, level: str) -> None:
        table = self._known(name)
        self._refuse_while_building(table)
        before = dict(table.options)
        table.options |= {"validationLevel": level, "validationAction": table.options.get("validationAction", "error")}
        at = self._emit(
            "modify",
            name,
            table,
            operationDescription={"validationLevel": level},
            stateBeforeChange={"collectionOptions": before},
        )
        self._ddl(DdlType.MODIFY, at, {table.id}, {name})

    def drop(self, name: TableName) -> None:
        table = self._known(name)
        for build in list(table.building.values()):
            self._end_build(build)
            self._unseen_entry()
        del self.tables[name]
        at = self._emit("drop", name, table)
        self._ddl(DdlType.DROP, at, {table.id}, {name}, {table.id})

    def rename(self, name: TableName, to: TableName, *, replace: bool) -> None:
        table, replaced = self._known(name), self.tables.get(to)
        if name == to or name.db != to.db:
            raise NotPossible("not a rename within a database", 20)
        if replaced is not None and not replace:
            raise NotPossible("the new name is taken", 48)
        self._refuse_while_building(table)
        self._refuse_while_building(replaced)
        described: dict[str, Any] = {"to": {"db": to.db, "coll": to.coll}}
        if replaced is not None:
            described["dropTarget"] = Binary(bytes.fromhex(replaced.id), 4)
        del self.tables[name]
        self.tables[to] = table
        table.name = to
        at = self._emit("rename", name, table, to={"db": to.db, "coll": to.coll}, operationDescription=described)
        table.named_at = at.ts
        dropped = {replaced.id} if replaced else set()
        self._ddl(DdlType.RENAME, at, {table.id, *dropped}, {name, to}, dropped, to)

    def convert_to_capped(self, name: TableName, size: int) -> None:
        """As servers do it: a table beside it, rows that no stream shows, and a rename over the old one."""
        table = self._known(name)
        self._refuse_while_building(table)
        aside = TableName(name.db, f"tmp{self.machine.random.randrange(10**5):05}.convertToCapped.{name.coll}")
        converted = self.create(aside, {"capped": True, "size": size, "temp": True})
        for key, row in table.rows.items():
            self._unseen_entry()
            converted.rows[key] = row
            converted.history.append((self.last_event, key, row))
        del converted.options["temp"]
        self.rename(aside, name, replace=True)

    def drop_database(self, db: str) -> None:
        names = [name for name in self.tables if name.db == db]
        if not names:
            raise NotPossible("no such database")
        for name in names:
            self.drop(name)
        at = self._emit("dropDatabase", db, None)
        self._ddl(DdlType.DROP_DATABASE, at, set(), set())

    # rows

    def insert(self, name: TableName, row: Row) -> None:
        table = self._known(name)
        if row["_id"] in table.rows:
            raise NotPossible("the key is there", 11000)
        row = self._versioned(row)
        self._check_unique(table, row)
        at = self._emit("insert", name, table, fullDocument=row, documentKey={"_id": row["_id"]})
        self._keep(table, row["_id"], row, at)

    def replace(self, name: TableName, row: Row) -> None:
        table = self._known(name)
        if row["_id"] not in table.rows:
            raise NotPossible("no such row")
        row = self._versioned(row)
        self._check_unique(table, row)
        before = table.rows[row["_id"]]
        at = self._emit("replace", name, table, fullDocument=row, documentKey={"_id": row["_id"]}, before=before)
        self._keep(table, row["_id"], row, at)

    def update(self, name: TableName, key: Any, sets: Row, removed: list[str]) -> None:
        table = self._known(name)
        if key not in table.rows:
            raise NotPossible("no such row")
        row = {field_name: value for field_name, value in table.rows[key].items() if field_name not in removed}
        changed = self._versioned(sets)
        row |= dict(sorted(changed.items()))
        self._check_unique(table, row)
        description = {"updatedFields": dict(sorted(changed.items())), "removedFields": removed, "truncatedArrays": []}
        images = {"before": table.rows[key], "after": row}
        at = self._emit("update", name, table, documentKey={"_id": key}, updateDescription=description, **images)
        self._keep(table, key, row, at)

    def delete(self, name: TableName, key: Any) -> None:
        table = self._known(name)
        if key not in table.rows:
            raise NotPossible("no such row")
        at = self._emit("delete", name, table, documentKey={"_id": key}, before=table.rows[key])
        self._keep(table, key, None, at)

    def _versioned(self, row: Row) -> Row:
        """Each version of a row has a number of its own, so that at the target it says which event it is of."""
        return {**row, "v": len(self.versions) + 1}

    def _keep(self, table: Table, key: Any, row: Row | None, at: Position) -> None:
        if row is None:
            del table.rows[key]
        else:
            table.rows[key] = row
            self.versions[row["v"]] = row
            self.version_at[row["v"]] = table.id, at
        table.history.append((at, key, row))

    def _check_unique(self, table: Table, row: Row) -> None:
        for spec in table.indexes.values():
            field_name = next(iter(spec["key"]))
            if spec.get("unique") and field_name != "_id":
                for key, other in table.rows.items():
                    if key != row["_id"] and other.get(field_name) == row.get(field_name):
                        raise NotPossible("the value is taken", 11000)

    def _known(self, name: TableName) -> Table:
        if name not in self.tables:
            raise NotPossible(f"no {name}", 26)
        return self.tables[name]


@dataclass(frozen=True, slots=True)
class _Shown:
    kind: str
    name: object
    fields: Mapping[str, Any]
    position: Position

    def __str__(self) -> str:
        wanted = ("documentKey", "updateDescription", "to")
        said = " ".join(str(self.fields[name]) for name in wanted if name in self.fields)
        at = self.position
        return f"{self.kind} {self.name} {said} at {at.ts.seconds - FIRST_SECOND}.{at.ts.increment}/{at.token[28:34]}"
