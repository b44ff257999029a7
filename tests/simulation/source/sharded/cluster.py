"""`ClusterSource`: a sharded cluster in memory, as its users write to it through a router, and as the judge knows it.

    config servers, sa, sb, at times sc     each a replica set with an oplog and a clock of its own
    rows                                    at the shard that owns them; a transaction is one entry, or prepared on several shards
    DDL, moves                              acts of several steps (`ddl.py`, `moves.py`): between two steps others write

What happened is known by effective time: the commit timestamp of a transaction across shards, else the time of the entry. Servers hear of
each other's times when one asks another; clients may not.
"""

from __future__ import annotations

import uuid
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from operator import itemgetter
from random import Random
from typing import Any

from bson.binary import Binary
from bson.objectid import ObjectId

from changefeed.cluster_time import ClusterTime
from changefeed.event import DdlType
from changefeed.position import Position
from changefeed.table import TableId, TableName
from source.sharded.effective_order import place_of
from tests.simulation.clockwork.machine import Machine
from tests.simulation.source.oplog import NOTHING_BEFORE, Operation, shard_place
from tests.simulation.source.sharded import ddl, moves
from tests.simulation.source.sharded.acts import Acts
from tests.simulation.source.sharded.config_servers import CONFIG, ConfigServers
from tests.simulation.source.sharded.placement import Chunk, PlacedTable
from tests.simulation.source.sharded.shard import Shard, new_session
from tests.simulation.source.sharded.transaction import Kept, Transaction, commit
from tests.simulation.source.tables import Ddl, NotPossible, Row, Table, Tables

_COMMITS = 0.9
_EVERYWHERE = 0.5
_SKEWS = (0.0, 0.0, 0.3, -0.3, 0.9)


class ClusterSource(Tables):
    tables: dict[TableName, PlacedTable]  # type: ignore[assignment]  # all of its tables are placed ones
    by_id: dict[TableId, PlacedTable]  # type: ignore[assignment]

    def __init__(self, machine: Machine, databases: Iterable[str], shards: Sequence[str] = ()) -> None:
        """`shards`: their names, the first is every database's primary shard. Otherwise the machine chooses."""
        super().__init__()
        self.machine = machine
        self.version = (6, 0)
        random = machine.random
        self.config = ConfigServers(machine, skew=random.choice(_SKEWS))
        names = shards or (("sa", "sb") if random.random() < 0.5 else ("sa", "sb", "sc"))
        self.shards = {name: Shard(machine, name, skew=random.choice(_SKEWS)) for name in names}
        self._gossips = random.random() < 0.5
        """Whether its clients carry times from shard to shard at each write. At inserts they always do: who writes an `_id` again, with another
        shard key, knows that it is free. Two clients that did not would have one `_id` on two shards, by cluster time.
        """
        self._heard = self.config.clock
        self._numbers = 0
        self._transaction: Transaction | None = None
        self._alone = False
        """Whether the transaction consists of one command, a change of a shard key."""
        self._retryable = False
        self._parts: int | None = None
        self._commits: bool | None = None
        self.acts = Acts(machine)
        self.transactions_open = 0
        self._ids: dict[TableId, TableId] = {}
        """The tables of UUIDs that superseded a table's first one."""
        self.last_event = Position(self.config.clock)
        self._slow_reads = self._slow_scan = 0.0
        self.fate = Random(f"removed shards of {machine.seed}")
        """Apart from the other choices, so that seeds without it stay what they are."""
        self.draining: set[str] = set()
        self.retired: dict[str, Shard] = {}
        """Shards that were removed. What the changefeed has not read, they still have to tell."""
        for name in self.shards:
            self.admit(name)
        for db in databases:
            self.config.put("databases", self.database_document(db, random.choice(shards[:1] or names)))

    # the servers

    @property
    def streams(self) -> Mapping[str, Shard]:
        return {CONFIG: self.config, **self.shards}

    @property
    def takers(self) -> list[Shard]:
        """Those that may get chunks and databases."""
        return [shard for name, shard in self.shards.items() if name not in self.draining]

    @property
    def _of_rows(self) -> list[Shard]:
        return [*self.shards.values(), *self.retired.values()]

    @property
    def _servers(self) -> list[Shard]:
        return [self.config, *self._of_rows]

    def admit(self, name: str) -> None:
        self.tell(self.shards[name], self.config)
        self.config.put("shards", {"_id": name, "host": _host(name), "state": 1})
        self.tell(self.config, self.shards[name])

    def changes(self) -> list[dict[str, Any]]:
        """The log of changes that config servers keep for users, as far as it is read."""
        names = sorted({*self.shards, *self.retired})
        return [{"_id": name, "what": "addShard", "details": {"name": name, "host": _host(name)}} for name in names]

    def database_document(self, db: str, primary: str) -> dict[str, Any]:
        version = {"uuid": Binary(self.new_uuid(), 4), "timestamp": self.config.clock.to_bson(), "lastMod": 1}
        return {"_id": db, "primary": primary, "partitioned": False, "version": version}

    def tell(self, one: Shard, *others: Shard) -> None:
        """A server asks others, which hear of its time."""
        for other in others:
            other.learn(one.clock)

    def primary_of(self, db: str) -> Shard:
        databases = self.config.now["databases"]
        if db not in databases:
            raise NotPossible(f"no database {db}", 26)
        return self.shards[databases[db]["primary"]]

    def holders(self, table: PlacedTable) -> list[Shard]:
        return [shard for shard in self.shards.values() if shard.held(table.uuid_now)]

    def new_uuid(self) -> bytes:
        return uuid.UUID(int=self.machine.random.getrandbits(128), version=4).bytes

    def new_object_id(self) -> ObjectId:
        return ObjectId(self.machine.random.getrandbits(96).to_bytes(12, "big"))

    def new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    @property
    def building(self) -> bool:
        """Whether anything is under way that will still be seen."""
        return bool(self.acts.under_way or self.transactions_open)

    # rows

    @contextmanager
    def batch(
        self,
        *,
        shared_time: bool,
        between: Callable[[], None] | None = None,
        parts: int | None = None,
        commits: bool | None = None,
    ) -> Iterator[None]:
        """`shared_time`: a transaction. `parts`: of how many entries at a shard, `commits`: whether it does; else the machine chooses."""
        self._parts, self._commits = parts, commits
        self._retryable = self.machine.random.random() < 0.5
        if between is not None:
            between()
        self._transaction = Transaction() if shared_time else None
        try:
            yield
        finally:
            transaction, self._transaction = self._transaction, None
            if transaction is not None:
                self._end(transaction)

    def insert_many(self, name: TableName, *parts: list[Row], between: Callable[[], None]) -> None:
        for number, rows in enumerate(parts):
            if number:
                between()
            for row in rows:
                self.insert(name, row)

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
        assert isinstance(table, PlacedTable)
        now = after if after is not None else dict(o) if op in "iu" else None
        key = (before or now or {})["_id"]
        at = [self.shards[table.owner(row)] for row in (before, now) if row is not None]
        ui = table.uuid_now
        ns = str(table.name)
        if len(set(at)) > 1:
            assert before is not None
            assert now is not None
            made = [
                (at[0], Operation("d", ns, table.document_key(before), None, ui)),
                (at[1], Operation("i", ns, now, table.document_key(now), ui)),
            ]
        elif op == "d":
            made = [(at[0], Operation("d", ns, table.document_key(before or {}), None, ui))]
        else:
            made = [(at[0], Operation(op, ns, o, table.document_key(before or now or {}), ui))]
        self._refuse_blocked(table, key, {shard for shard, _ in made}, new=op == "i")
        if len(made) > 1 and self._transaction is None:
            self._transaction, self._alone = Transaction(), True
        if self._transaction is not None:
            self._refuse_in_transaction(table)
            self._transaction.operations += [(shard, table, key, operation) for shard, operation in made]
            if now is not None and len(made) > 1:
                self.moved.add((table.id, now["v"]))
            return Position(ClusterTime(0, 0))
        [(shard, operation)] = made
        return self._written(shard, table, key, operation, before)

    def _refuse_blocked(self, table: PlacedTable, key: Any, shards: set[Shard], *, new: bool) -> None:
        """A `new` document waits for transactions at all shards: until one is decided, what it deletes is there."""
        names = {shard.name for shard in shards}
        if table.blocked or table.closed & names:
            raise NotPossible("in the critical section of a command", 13388)
        if any(key == locked and (new or shard in names) for shard, locked in table.locked) or (
            table.undecided and any(spec.get("unique") for spec in table.indexes.values())
        ):
            raise NotPossible("a transaction has written it", 112)
        if any(shard.down.until > self.machine.now for shard in shards):
            raise NotPossible("the shard is away", 189)

    def _refuse_in_transaction(self, table: PlacedTable) -> None:
        alone, self._alone = self._alone, False
        if self.acts.is_busy(table.id):
            if alone:
                self._transaction = None
            raise NotPossible("something else has its lock", 117)
        self._alone = alone

    def _written(
        self, shard: Shard, table: PlacedTable, key: Any, operation: Operation, before: Row | None
    ) -> Position:
        if self._gossips or operation.op == "i":
            shard.learn(self._heard)
        at: list[Position] = []

        def undo() -> bool:
            """Not of a row that another shard has by now: users wait for the majority before they write what relies on it."""
            if any(each[1] == key and each[0] > at[0] for each in table.history):
                return False
            self._forget(table, key, before, at[0])
            return True

        number = self.new_number()
        session = {**new_session(number), "stmtId": 0, "prevOpTime": NOTHING_BEFORE} if self._retryable else {}
        ts = shard.write(operation, head=session, of_users=_row_place, undo=undo)
        at.append(_row_place(ts))
        self.happened(at[0])
        self._heard = max(self._heard, shard.clock)
        self.machine.note(shard.name, Logged(operation, at[0]))
        return at[0]

    def _forget(self, table: PlacedTable, key: Any, before: Row | None, at: Position) -> None:
        row = table.rows.pop(key, None)
        if before is not None:
            table.rows[key] = before
        table.history = [each for each in table.history if each[:2] != (at, key)]
        if row is not None:
            self.version_at.pop((table.id, row["v"]), None)

    def _keep(self, table: Table, key: Any, row: Row | None, at: Position) -> None:
        assert isinstance(table, PlacedTable)
        if self._transaction is None:
            super()._keep(table, key, row, at)
            table.history.sort(key=_when)  # a shard's clock may be behind another's
            return
        self._transaction.kept.append(Kept(table, key, table.rows.get(key), row))
        self.set_row(table, key, row)
        if self._alone:
            transaction, self._transaction, self._alone = self._transaction, None, False
            self._end(transaction)

    def set_row(self, table: PlacedTable, key: Any, row: Row | None) -> None:
        if row is None:
            table.rows.pop(key, None)
        else:
            table.rows[key] = row
            self.versions[row["v"]] = row

    def happened(self, at: Position) -> None:
        self.last_event = max(self.last_event, at)

    # transactions

    def _end(self, transaction: Transaction) -> None:
        if not transaction.operations:
            return
        for shard in transaction.shards:
            if self._gossips or any(operation.op == "i" for _, _, _, operation in transaction.operations):
                shard.learn(self._heard)
        session, parts = new_session(self.new_number()), self._parts or self.machine.random.choice((1, 1, 2, 3))
        if len(transaction.shards) == 1:
            [shard] = transaction.shards
            last = len(transaction.operations) - 1
            ts = shard.transact(transaction.of(shard), session, parts=parts, at=lambda ts: shard_place(ts, last))
            self.took_effect(transaction, ts)
            self._heard = max(self._heard, shard.clock)
            return
        self.machine.count("source: transaction across shards")
        for table in transaction.tables:
            table.undecided += 1
        for shard, table, key, _ in transaction.operations:
            table.locked.add((shard.name, key))
        self.transactions_open += 1
        commits = self._commits if self._commits is not None else self.machine.random.random() < _COMMITS
        self.acts.run(commit(self, transaction, session, parts, commits=commits))

    def tell_all(self, ones: Iterable[Shard], other: Shard) -> None:
        for one in ones:
            self.tell(one, other)

    def took_effect(self, transaction: Transaction, ts: ClusterTime) -> None:
        self._heard = max(self._heard, ts)
        for number, kept in enumerate(transaction.kept):
            at = shard_place(ts, number)
            insort(kept.table.history, (at, kept.key, kept.row), key=_when)
            if kept.row is not None:
                self.version_at[kept.table.id, kept.row["v"]] = at
            self.happened(at)
        for shard, _, _, operation in transaction.operations:
            self.machine.note(shard.name, Logged(operation, Position(ts)))

    # DDL and moves, as users ask for them

    def create(self, name: TableName, options: dict[str, Any] | None = None) -> PlacedTable:
        if name in self.tables:
            raise NotPossible(f"{name} exists", 48)
        self._refuse_transaction()
        if name.db not in self.config.now["databases"]:
            self.acts.begin(ddl.create_database(self, name.db), name.db)
            raise NotPossible(f"database {name.db} is being created")
        self.acts.refuse_busy(name, name.db)
        shard = self.primary_of(name.db)
        if self._gossips:
            shard.learn(self._heard)
        return self.created(shard, name, options or {})

    def created(self, shard: Shard, name: TableName, options: dict[str, Any]) -> PlacedTable:
        """By the database's primary shard: it is a table from here on."""
        uuid_now = self.new_uuid()
        table = PlacedTable(TableId(uuid_now.hex()), name, dict(options), uuid_now=uuid_now, primary=shard.name)
        self.tables[name] = self.by_id[table.id] = table
        ts = shard.create(name, uuid_now, options, of_users=partial(self.ddl_place, shard))
        table.placed_since(ts)
        self.ddl_happened(DdlType.CREATE, self.ddl_place(shard, ts), [table], {name})
        self._heard = max(self._heard, shard.clock)
        return table

    def create_sharded(self, name: TableName, key: str) -> None:
        if name in self.tables:
            raise NotPossible(f"{name} exists", 48)
        self.acts.begin(ddl.create_sharded(self, name, key), *self._subjects(name))

    def shard_table(self, name: TableName, key: str) -> None:
        table = self._known(name)
        if table.key or any(spec.get("unique") for spec in table.indexes.values()) or table.options.get("capped"):
            raise NotPossible("it cannot be sharded", 20)
        self.acts.begin(ddl.shard_table(self, table, key), *self._subjects(name))

    def create_index(self, name: TableName, spec: dict[str, Any], *, everywhere: bool | None = None) -> None:
        """`everywhere`: at all owners; else the machine chooses."""
        table = self._known(name)
        if table.key and spec.get("unique"):
            raise NotPossible("cannot create a unique index without the shard key", 67)
        alike = [each for each in table.indexes.values() if each["name"] == spec["name"] or each["key"] == spec["key"]]
        for there in alike:
            self._refuse_another(there, spec)
        if not alike:
            everywhere = everywhere if everywhere is not None else self.machine.random.random() < _EVERYWHERE
            self.acts.begin(ddl.create_index(self, table, spec, everywhere=everywhere), *self._subjects(name))

    def drop_index(self, name: TableName, index: str) -> None:
        table = self._known(name)
        if index in ("_id_", f"{table.key}_1") or index not in table.indexes:
            raise NotPossible("it cannot be dropped", 72)
        self.acts.begin(ddl.drop_index(self, table, index), *self._subjects(name))

    def modify(self, name: TableName, level: str) -> None:
        self.acts.begin(ddl.modify(self, self._known(name), level), *self._subjects(name))

    def drop(self, name: TableName) -> None:
        self.acts.begin(ddl.drop(self, self._known(name)), *self._subjects(name))

    def rename(self, name: TableName, to: TableName, *, replace: bool) -> None:
        table, replaced = self._known(name), self.tables.get(to)
        if name == to or name.db != to.db:
            raise NotPossible("not a rename within a database", 20)
        if replaced is not None and not replace:
            raise NotPossible("the new name is taken", 48)
        self.acts.begin(ddl.rename(self, table, to), *self._subjects(name, to))

    def drop_database(self, db: str) -> None:
        self.primary_of(db)
        self.acts.begin(ddl.drop_database(self, db), *self._whole(db))

    def move_chunk(self, name: TableName, chunk: Chunk | None = None) -> None:
        table = self._known(name)
        if not table.key:
            raise NotPossible("it is not sharded")
        self.acts.begin(moves.move_chunk(self, table, chunk), *self._subjects(name))

    def retire(self, name: str) -> None:
        """Removes a shard, which may stop for good soon afterwards."""
        self.draining.add(name)
        self.acts.run(moves.retire_shard(self, self.shards[name]))

    def move_primary(self, db: str, *, fails: bool) -> None:
        self.primary_of(db)
        self.acts.begin(moves.move_primary(self, db, fails=fails), *self._whole(db))

    def reshard(self, name: TableName, owners: int) -> None:
        """`owners`: to how many shards, at most."""
        table = self._known(name)
        if not table.key:
            raise NotPossible("it is not sharded")
        shards = self.machine.random.sample(self.takers, min(owners, len(self.takers)))
        self.acts.begin(moves.reshard(self, table, shards), *self._subjects(name))

    def _subjects(self, *names: TableName) -> list[object]:
        """Also each name's database, which an act of the whole database has to itself."""
        self._refuse_transaction()
        self.acts.refuse_busy(*{name.db for name in names})
        found: list[object] = [*names]
        found += [self.tables[name].id for name in names if name in self.tables]
        return found

    def _whole(self, db: str) -> list[object]:
        self._refuse_transaction()
        self.acts.refuse_busy_in(db)
        tables = [table for name, table in self.tables.items() if name.db == db]
        return [db, *(table.id for table in tables), *(table.name for table in tables)]

    def _refuse_transaction(self) -> None:
        if self._transaction is not None:
            raise NotPossible("not in a transaction", 263)

    def _known(self, name: TableName) -> PlacedTable:
        table = super()._known(name)
        assert isinstance(table, PlacedTable)
        return table

    def ddl_happened(
        self,
        kind: DdlType,
        at: Position,
        tables: Iterable[PlacedTable],
        names: set[TableName],
        dropped: Iterable[PlacedTable] = (),
        to: TableName | None = None,
        by_shard: Mapping[str, Position] | None = None,
    ) -> None:
        self._ddl(kind, at, {table.id for table in tables}, names, {table.id for table in dropped}, to, by_shard)
        self.happened(at)
        self.machine.note("source", f"{kind} of {', '.join(map(str, sorted(names)))} at {at}")

    @staticmethod
    def ddl_place(shard: Shard, ts: ClusterTime) -> Position:
        """Before all rows of its time, and by shard."""
        return place_of(ts, shard.name, 0)

    def count_indexes(self, table: PlacedTable) -> None:
        """A table has the indexes that all of its owners have."""
        owners = [self.shards[owner].collections[table.name].indexes for owner in table.owners]
        common = set.intersection(*(set(indexes) for indexes in owners))
        table.indexes = {name: spec for name, spec in owners[0].items() if name in common}

    # what judge and faults ask

    def table_id(self, uuid: TableId) -> TableId:
        return self._ids.get(uuid, uuid)

    def earliest(self, ddl: Ddl) -> Position:
        gone = {name for name, shard in self.retired.items() if shard.down.until == inf}
        return max((at for shard, at in ddl.by_shard.items() if shard not in gone), default=ddl.position)

    def ids_of(self, table: TableId) -> tuple[TableId, ...]:
        return (table, *(uuid for uuid, id in self._ids.items() if id == table))

    def superseded(self, table: PlacedTable, uuid_now: bytes) -> None:
        """It has another UUID from now on."""
        table.uuid_now = uuid_now
        self._ids[TableId(uuid_now.hex())] = table.id

    def table_of(self, uuid_now: bytes) -> PlacedTable | None:
        return next((table for table in self.tables.values() if table.uuid_now == uuid_now), None)

    def last_event_at(self, seconds: float) -> Position | None:
        """The last event that the majority of its shard had at that moment."""
        found = [last for shard in self.shards.values() if (last := shard.last_event(seconds)) is not None]
        return max(found, default=None)

    def event_times(self) -> Counter[ClusterTime]:
        return Counter(position.ts for table in self.by_id.values() for position, _, _ in table.history)

    def elect(self) -> None:
        shard = self.machine.random.choice([*self.streams.values()])
        shard.down.until = self.machine.now + self.machine.random.choice((0.0, 0.05, 0.5, 3.0))
        shard.elect()

    def hold_majority(self, until: float) -> None:
        """Of one of them; of all, where it ends."""
        shards = list(self.streams.values())
        for shard in shards if until <= self.machine.now else [self.machine.random.choice(shards)]:
            shard.hold_majority(until)

    def begin_of_transactions(self, ts: ClusterTime) -> ClusterTime:
        return min(shard.begin_of_transactions(ts) for shard in self._of_rows)

    def has_lost(self, ts: ClusterTime) -> bool:
        gone = [shard.removed_ts for shard in self.retired.values() if shard.down.until == inf and shard.removed_ts]
        return any(ts < removed_ts for removed_ts in gone) or any(shard.has_lost(ts) for shard in self._of_rows)

    def forget_what_is_not_needed(self, needed: ClusterTime) -> None:
        self.machine.random.choice([*self.shards.values()]).forget_what_is_not_needed(needed)

    def one_oplog(self) -> Shard:
        return self.machine.random.choice([*self.shards.values()])

    @property
    def from_secondaries(self) -> bool:
        return False

    @property
    def slow_reads(self) -> float:
        return self._slow_reads

    @slow_reads.setter
    def slow_reads(self, seconds: float) -> None:
        self._slow_reads = seconds
        for shard in self._servers:
            shard.slow_reads = seconds

    @property
    def slow_scan(self) -> float:
        return self._slow_scan

    @slow_scan.setter
    def slow_scan(self, seconds: float) -> None:
        self._slow_scan = seconds
        for shard in self._servers:
            shard.slow_scan = seconds

    def asks_nobody(self) -> None:
        for shard in self._servers:
            shard.asks_nobody()


_when: Callable[[tuple[Position, Any, Row | None]], Position] = itemgetter(0)


def _host(name: str) -> str:
    return f"{name}/{name}:27018"


def _row_place(ts: ClusterTime) -> Position:
    return shard_place(ts, 0)


@dataclass(frozen=True, slots=True)
class Logged:
    operation: Operation
    position: Position

    def __str__(self) -> str:
        of = self.operation
        return f"{of.op} {of.ns} {of.o2 if of.op == 'u' else ''} {of.o} at {self.position}"
