"""`SourceServer`: a replica set in memory. Writes become an oplog. Each member shows the part that it knows to be at a majority.

A batch of writes often has one cluster time, as a transaction has, so time alone does not order events. A majority has the entries some
moments after they were written, and each member learns of it a while later. A new primary knows of fewer commits than its predecessor has
shown, until a majority has its own first entry. Entries that no majority had may be lost with the old primary.

It behaves like real servers: `tests/component/simulation/` compares both.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from bson.binary import Binary

from changefeed.cluster_time import ClusterTime
from changefeed.event import DdlType
from changefeed.position import Position
from changefeed.table import TableId, TableName
from tests.simulation.clockwork.machine import Machine
from tests.simulation.source.oplog import Entry, Group, Operation, optime, place, session_of, single
from tests.simulation.source.replica_set import FIRST_SECOND, NOTE_EVERY, ReplicaSet
from tests.simulation.source.tables import ID_INDEX, Build, NotPossible, Row, Table, Tables
from tests.simulation.source.unique_index import duplicate_in, is_unique

_GROUPED_INSERTS = (8, 0)
"""Since this version several inserts of one command share one entry."""
_BUILT_AGAIN = 0.05


@dataclass(frozen=True)
class _Before:
    """The state before a batch, in case no majority gets the batch."""

    entries: int
    tables: Mapping[TableId, tuple[Table, Table]]
    """Each table with a copy of it."""
    named: Mapping[TableName, Table]
    ddls: int
    versions: int
    last_event: Position


class _Batch:
    """Consecutive writes of one user. Their entries are sorted when the batch ends."""

    def __init__(self, server: SourceServer, number: int, *, shared_time: bool, retryable: bool) -> None:
        self.entries: list[Entry] = []
        self._server = server
        self._number = number
        self._shared_time = shared_time
        self._retryable = retryable
        self._group: Group | None = None
        self._statement: Entry | None = None
        self._parts: list[ClusterTime] = []

    def reserve(self, times: int) -> None:
        """Reserves times for the first entries of a transaction. Other writes then come between them and its end."""
        self._parts = [self._server.tick() for _ in range(times)]

    def log(self, operation: Operation) -> Position:
        """Returns the operation's position. A transaction ends before an operation that cannot be in one."""
        if not (self._shared_time or self._group) or not self._server.groups(operation):
            self.end_group()
            return self._alone(operation)
        if self._group is None:
            more = self._server.machine.random.choice((0, 0, 1, 2))
            parts = [*self._parts, *(self._server.tick() for _ in range(more + 1))]
            self._parts = []
            self._group = Group(parts, in_session=self._server.machine.random.random() < 0.8)
        self._group.operations.append(operation)
        return place(self._group.ts, len(self._group.operations) - 1)

    def _alone(self, operation: Operation) -> Position:
        ts = self._server.tick()
        row = operation.op in "iud" and not operation.from_migrate
        linked = {**session_of(self._number), "stmtId": len(self.entries), "prevOpTime": optime(self._statement)}
        made = single(ts, self._server.election, operation, linked if row and self._retryable else {})
        self.entries.append(made)
        if row and self._retryable:
            self._statement = made
        return place(ts, 0)

    def of_others(self, act: Callable[[], None]) -> None:
        """Writes that do not belong to this session."""
        ours = self._retryable, self._shared_time
        self._retryable = self._shared_time = False
        try:
            act()
        finally:
            self._retryable, self._shared_time = ours

    def begin_transaction(self, entries: int) -> None:
        self._group = Group([self._server.tick() for _ in range(entries)])

    def begin_inserts(self) -> None:
        self.end_group()
        self._group = Group([self._server.tick()], inserts=True, inserts_of=self._statement)

    def end_group(self) -> None:
        group, self._group = self._group, None
        if group is None or not group.operations:
            return
        made = group.entries(self._server.election, self._number)
        self.entries += made
        if group.inserts:
            self._statement = made[-1]


class SourceServer(Tables, ReplicaSet):
    def __init__(self, machine: Machine, *, note_every: float = NOTE_EVERY, version: tuple[int, int] = (6, 0)) -> None:
        Tables.__init__(self)
        ReplicaSet.__init__(self, machine, version=version, note_every=note_every)
        self._before: list[_Before] = []
        self.any_group = False
        """Whether any operations may share a time, as where several primaries share one clock."""
        self._batch: _Batch | None = None
        self._batches = 0
        self.last_event = Position(self._last)
        self.begin()

    @contextmanager
    def batch(
        self,
        *,
        shared_time: bool,
        between: Callable[[], None] | None = None,
        transaction: int = 0,
        retryable: bool | None = None,
    ) -> Iterator[None]:
        """`shared_time`: all writes get one cluster time. `between` is then called between the transaction's first entry and the others.

        `transaction`: the batch is a transaction of this many entries.
        """
        self._remember()
        self._batches += 1
        if retryable is None:
            retryable = self.machine.random.random() < 0.5
        self._batch = _Batch(self, self._batches, shared_time=shared_time, retryable=retryable)
        if transaction:
            self._batch.begin_transaction(transaction)
        try:
            if between is not None:
                self._between(between)
            yield
        finally:
            self._batch.end_group()
            made, self._batch = self._batch.entries, None
            self.oplog += sorted(made, key=lambda each: each.ts)
            self._commit_batch(made)

    def _between(self, act: Callable[[], None]) -> None:
        assert self._batch is not None
        transaction, self._batch = self._batch, _Batch(self, self._batches, shared_time=False, retryable=False)
        transaction.reserve(1)
        try:
            act()
        finally:
            transaction.entries += self._batch.entries
            self._batch = transaction

    def _commit_batch(self, made: list[Entry]) -> None:
        if any(each.partial for each in made):
            self.machine.count("source: transaction of several entries")
            upto = len(self.oplog) - self.machine.random.randrange(len(made))
            self._commit_later(upto)
        self._commit_later(len(self.oplog))

    # what an election takes back

    def _remember(self) -> None:
        self._before = [before for before in self._before if before.entries >= self._has]
        tables = {id: (table, table.copy()) for id, table in self.by_id.items()}
        self._before.append(
            _Before(len(self.oplog), tables, dict(self.tables), len(self.ddls), len(self.version_at), self.last_event)
        )

    def _take_back(self) -> None:
        possible = [before for before in self._before if self._has <= before.entries < len(self.oplog)]
        if not possible or self.machine.random.random() < 0.3:
            return
        before = self.machine.random.choice(possible)
        lost = self.oplog[before.entries :]
        kept = 1 if lost[0].partial and self.machine.random.random() < 0.5 else 0
        self.taken_back += len(lost) - kept
        self.machine.count("source: entries that an election took back", len(lost) - kept)
        self.machine.note("source", f"an election takes {len(lost) - kept} entries back")
        del self.oplog[before.entries + kept :]
        self._told = min(self._told, len(self.oplog))
        self._before = [each for each in self._before if each.entries < before.entries]
        self._restore(before)

    def _restore(self, before: _Before) -> None:
        for table in self.by_id.values():
            for build in table.building.values():
                build.going = False
        self.by_id = {id: table for id, (table, _) in before.tables.items()}
        for table, copy in before.tables.values():
            vars(table).update(vars(copy))
        self.tables = dict(before.named)
        del self.ddls[before.ddls :]
        lost_versions = list(self.version_at)[before.versions :]
        for version in lost_versions:
            del self.version_at[version]
        self.last_event = before.last_event
        for table in self.by_id.values():
            for build in table.building.values():
                build.going = True
                self.machine.after(_BUILT_AGAIN, partial(self._build_again, build))

    def _build_again(self, build: Build) -> None:
        if build.going:
            with self.batch(shared_time=False):
                try:
                    self.commit_index(build)
                except NotPossible:
                    self.machine.count("source: index build that is refused after an election")

    # what the judge asks

    def last_event_at(self, seconds: float) -> Position | None:
        """The last event that a majority had at that moment."""
        shown = reversed(self.oplog[: self.visible_at(seconds)])
        return next((entry.shown[-1].position for entry in shown if entry.shown), None)

    def event_times(self) -> Counter[ClusterTime]:
        return Counter(event.position.ts for entry in self.oplog for event in entry.shown)

    # operations

    def groups(self, operation: Operation) -> bool:
        return self.any_group or operation.may_be_in_a_transaction

    def _log(self, operation: Operation) -> Position:
        assert self._batch is not None, "writes belong to a batch"
        position = self._batch.log(operation)
        if operation.op != "n" and operation.command not in _UNSEEN:
            self.last_event = max(self.last_event, position)
        self.machine.note("source", _Logged(operation, position))
        return position

    def _command(self, name: TableName | str, table: Table | None, o: Mapping[str, Any], o2: Any = None) -> Position:
        db = name.db if isinstance(name, TableName) else name
        return self._log(Operation("c", f"{db}.$cmd", o, o2, table.uuid if table else None))

    def _row(
        self,
        op: str,
        table: Table,
        o: Mapping[str, Any],
        o2: Any = None,
        *,
        before: Row | None = None,
        after: Row | None = None,
    ) -> Position:
        return self._log(Operation(op, str(table.name), o, o2, table.uuid, before=before, after=after))

    # DDL

    def create(self, name: TableName, options: dict[str, Any] | None = None) -> Table:
        if name in self.tables:
            raise NotPossible(f"{name} exists", 48)
        id = TableId(uuid.UUID(int=self.machine.random.getrandbits(128), version=4).hex)
        table = Table(id=id, name=name, options=options or {})
        self.tables[name] = self.by_id[id] = table
        at = self._command(name, table, {"create": name.coll, **table.options, "idIndex": dict(ID_INDEX)})
        table.named_at = at.ts
        self._ddl(DdlType.CREATE, at, {id}, {name})
        return table

    def create_index(self, name: TableName, spec: dict[str, Any]) -> Build | None:
        """Creates the index at once if there are no rows; otherwise starts a build that `commit_index` ends."""
        table = self._known(name)
        alike = [each for each in self._specs(table) if each["name"] == spec["name"] or each["key"] == spec["key"]]
        for there in alike:
            self._refuse_another(there, spec)
        if alike:
            return None
        if not table.rows:
            self._index_built(table, spec, {"createIndexes": name.coll, **spec})
            return None
        build = Build(table, spec, uuid.UUID(int=self.machine.random.getrandbits(128), version=4).bytes)
        table.building[spec["name"]] = build
        self._build_entry("startIndexBuild", build)
        return build

    def commit_index(self, build: Build) -> None:
        """Refuses and ends the build if two rows share a unique value."""
        if not build.going:
            raise NotPossible("the build was given up", 276)
        self._end_build(build)
        if is_unique(build.spec) and duplicate_in(build.spec, build.table.rows):
            self._build_entry("abortIndexBuild", build)
            raise NotPossible("duplicates", 11000)
        self._index_built(build.table, build.spec, _build_command("commitIndexBuild", build))

    def _index_built(self, table: Table, spec: dict[str, Any], o: Mapping[str, Any]) -> None:
        table.indexes[spec["name"]] = spec
        at = self._command(table.name, table, o)
        self._ddl(DdlType.CREATE_INDEXES, at, {table.id}, {table.name})

    def _end_build(self, build: Build) -> None:
        build.going = False
        del build.table.building[build.spec["name"]]

    def _build_entry(self, command: str, build: Build) -> None:
        """Writes the entry of a build that starts or is aborted. No stream shows it."""
        self._command(build.table.name, build.table, _build_command(command, build))

    def _refuse_while_building(self, table: Table | None) -> None:
        if table is not None and table.building:
            raise NotPossible("an index build is running", 12587)

    def drop_index(self, name: TableName, index: str) -> None:
        """A running build of the index is aborted, which no stream shows."""
        table = self._known(name)
        if index in table.building:
            build = table.building[index]
            self._end_build(build)
            self._build_entry("abortIndexBuild", build)
            return
        if index == "_id_":
            raise NotPossible("cannot drop _id index", 72)
        if index not in table.indexes:
            raise NotPossible("no such index", 27)
        spec = table.indexes.pop(index)
        at = self._command(name, table, {"dropIndexes": name.coll, "index": index}, spec)
        self._ddl(DdlType.DROP_INDEXES, at, {table.id}, {name})

    def modify(self, name: TableName, level: str) -> None:
        table = self._known(name)
        self._refuse_while_building(table)
        before = {"collectionOptions_old": {"uuid": Binary(table.uuid, 4), **table.options}}
        table.options |= {"validationLevel": level, "validationAction": table.options.get("validationAction", "error")}
        at = self._command(name, table, {"collMod": name.coll, "validationLevel": level}, before)
        self._ddl(DdlType.MODIFY, at, {table.id}, {name})

    def drop(self, name: TableName) -> None:
        table = self._known(name)
        for build in list(table.building.values()):
            self._end_build(build)
            self._build_entry("abortIndexBuild", build)
        del self.tables[name]
        at = self._command(name, table, {"drop": name.coll}, {"numRecords": len(table.rows)})
        self._ddl(DdlType.DROP, at, {table.id}, {name}, {table.id})

    def rename(self, name: TableName, to: TableName, *, replace: bool) -> None:
        table, replaced = self._known(name), self.tables.get(to)
        if name == to or name.db != to.db:
            raise NotPossible("not a rename within a database", 20)
        if replaced is not None and not replace:
            raise NotPossible("the new name is taken", 48)
        self._refuse_while_building(table)
        self._refuse_while_building(replaced)
        o: dict[str, Any] = {"renameCollection": str(name), "to": str(to), "stayTemp": False}
        if replaced is not None:
            o["dropTarget"] = Binary(replaced.uuid, 4)
        del self.tables[name]
        self.tables[to] = table
        table.name = to
        at = self._command(name, table, o, {"numRecords": len(replaced.rows)} if replaced else None)
        table.named_at = at.ts
        dropped = {replaced.id} if replaced else set()
        self._ddl(DdlType.RENAME, at, {table.id, *dropped}, {name, to}, dropped, to)

    def convert_to_capped(self, name: TableName, size: int) -> None:
        """As servers do it: a new table, rows that no stream shows, and a rename over the old table."""
        table = self._known(name)
        self._refuse_while_building(table)
        aside = TableName(name.db, f"tmp{self.machine.random.randrange(10**5):05}.convertToCapped.{name.coll}")
        converted = self.create(aside, {"capped": True, "size": size, "temp": True})
        self._fill(converted, table)
        del converted.options["temp"]
        self.rename(aside, name, replace=True)

    def clone_as_capped(self, name: TableName, to: TableName, size: int) -> None:
        table = self._known(name)
        self._fill(self.create(to, {"capped": True, "size": size}), table)

    def _fill(self, made: Table, table: Table) -> None:
        for key, row in table.rows.items():
            moved = Operation("i", str(made.name), row, {"_id": key}, made.uuid, from_migrate=True)
            self._keep(made, key, row, self._log(moved))

    def drop_database(self, db: str) -> None:
        names = [name for name in self.tables if name.db == db]
        if not names:
            raise NotPossible("no such database")
        for name in names:
            self.drop(name)
        at = self._command(db, None, {"dropDatabase": 1})
        self._ddl(DdlType.DROP_DATABASE, at, set(), set())

    def insert_many(self, name: TableName, *parts: list[Row], between: Callable[[], None]) -> None:
        """Inserts by one command. Newer servers write each part as one entry; other writes come between two parts."""
        assert self._batch is not None, "writes belong to a batch"
        for number, rows in enumerate(parts):
            if number:
                self._batch.of_others(between)
            if self.version >= _GROUPED_INSERTS and "max" not in self._known(name).options:
                self._batch.begin_inserts()
            try:
                for row in rows:
                    self.insert(name, row)
            finally:
                self._batch.end_group()


_UNSEEN = ("startIndexBuild", "abortIndexBuild")


def _build_command(command: str, build: Build) -> dict[str, Any]:
    return {command: build.table.name.coll, "indexBuildUUID": Binary(build.uuid, 4), "indexes": [build.spec]}


@dataclass(frozen=True, slots=True)
class _Logged:
    operation: Operation
    position: Position

    def __str__(self) -> str:
        of, at = self.operation, self.position
        key = f" {of.o2}" if of.op == "u" else ""
        return f"{of.op} {of.ns}{key} {of.o} at {at.ts.seconds - FIRST_SECOND}.{at.ts.increment}/{at.token}"
