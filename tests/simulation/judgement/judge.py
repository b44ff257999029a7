"""`Judge`: checks the invariants at each effect at the target and at each write to etcd, with full knowledge of source and target.

It decides on its own what is to be replicated, and which definitions are equal (`agreement.py`). Of the product it uses only the form of
the records.

The source tells tables apart by what they are, a changefeed by the ids under which it takes them in. A table of a cluster that leaves the filter,
gets a new UUID, and comes in again is one table of the source with two *lives* for the changefeed: two ids, two collections at the target for a
while, at times two nodes. Rows, orders and stops are judged by life.

I1 gate             each row written: all earlier DDLs of its table are done, and no later one; each DDL: its tables are at its position
I2 nothing lost     each checkpoint published: everything before it is downstream
I3 durable first    the same check: what is not acknowledged is not downstream
I4 one writer       each row written: by the node that has the table, and by no older task than the row's last writer
I5 DDL once         each effect of a DDL: its record is executing, no overlapping earlier DDL is open, the effect has not happened before
I6 converge         at the end
I7 progress         at the end; a changefeed may stop if the source's oplog has lost what it needs, or at a row that another client changed.
                    What waits for a user holds nothing else
ready               no table is given to a node that has not been ready for a while
stops               nothing is written of a table whose node has reported that it obeys the table's stop
moves               a table that fails is moved to one other node
lag                 each status: everything of the moment that it names is downstream
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from random import Random
from typing import Any

import bson

from changefeed.cluster_time import ClusterTime
from changefeed.documents.row_key import key_text
from changefeed.errors import Divergence, HistoryLost
from changefeed.event import DdlType
from changefeed.lifecycle import State
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState
from changefeed.records.node import NodeId
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId, TableName
from coordination.etcd.protocol import Change
from coordination.layout import child
from tests.simulation.clockwork.machine import Thread, Violation
from tests.simulation.clockwork.substitutes import EPOCH
from tests.simulation.cluster import FEED, LAYOUT, Cluster
from tests.simulation.gathered import differences_of, of_their_name, parts, table_of
from tests.simulation.judgement.agreement import DATABASES, GATHERED, GATHERED_TARGET, Agreement, definition_differences
from tests.simulation.judgement.etcd_records import EtcdRecords, lives_in
from tests.simulation.judgement.sync_judge import SyncJudge
from tests.simulation.source.oplog import placed
from tests.simulation.source.row_keys import KEYS, keys_of, ordered
from tests.simulation.source.tables import Ddl, Table
from tests.simulation.target.server import Collection, DdlEffect
from tests.simulation.target.sync_records import Snapshot

Row = dict[str, Any]

_OF_OTHERS = 1000
"""The key of a row that only the target has."""
_THERE_BEFORE = 0.7
"""The part of a table's rows that the target has before a copy that may remove nothing."""

_OF_A_DEFINITION = (DdlType.CREATE_INDEXES, DdlType.DROP_INDEXES, DdlType.MODIFY)
"""They change options and indexes alone."""


class Judge:
    def __init__(self, cluster: Cluster, agreement: Agreement) -> None:
        self._cluster = cluster
        self._source = cluster.source
        self._letters = cluster.target.letters
        self._agreement = agreement
        self._keys = keys_of(cluster.machine.seed)
        self._etcd = EtcdRecords(cluster)
        self._effects: set[tuple[Position, TableName, str]] = set()
        self._done: Counter[Position] = Counter()
        """How many effects each DDL has had."""
        self._writers: dict[tuple[TableId, Any], int] = {}
        """By life and key."""
        self._status: ChangefeedStatus | None = None
        self._excused: set[Position] = set()
        """DDLs that have waited for a user: the checkpoint may have passed them."""
        self._damaged: dict[tuple[TableId, Any], Position] = {}
        """Rows that another client changed at the target, by life and key, each with the position of its last event so far."""
        self._touched: set[tuple[TableId, Any]] = set()
        self._may_differ = set[TableId]()
        """Tables of which users have skipped a change of options or indexes."""
        self._late_from: Position | None = None
        """From where on the late tables are in the filter."""
        self.seen: Callable[[TableName, ClusterTime], None] = lambda name, ts: None
        """Called for each change that is written, with its time at the source."""
        self.of_somebody_else: Callable[[int], Row] = lambda number: {}
        """More fields of a row that another client inserts at the target."""
        self.in_order = False
        """Whether nothing goes wrong: then no row meets one that has its unique value, unless that one is from later."""
        cluster.target.judge = self
        if agreement.kept:
            cluster.target.others = self._fill
        cluster.etcd.observer = self.written

    # what happens at the target

    def row(self, thread: Thread, name: TableName, life: TableId | None, kind: str, key: Any, row: Row | None) -> None:
        self._count("row written, of a copy" if thread.copies else "row written")
        if life is not None and name == GATHERED_TARGET:
            life = table_of(key)
        if life is None:
            raise Violation(f"I1: {kind} of {key} into {name}, which is not there, by {thread.process}")
        table = self._source.table_id(life)
        self._check_writer(thread, life, key)
        self._check_not_stopped(life, f"row {key}")
        if row is None or thread.copies or (life, key) in self._touched | self._letters.ever:
            return
        position = self._source.version_at.get((table, row["v"]))
        if position is None:
            raise Violation(f"I1: {kind} of {row} into {name}, but {table} never had it")
        self.seen(name, position.ts)
        for ddl in (*self._touching(table), *(of_their_name(self._source) if name == GATHERED_TARGET else ())):
            if self._of_another_life(ddl, life):
                continue
            if ddl.position < position and not self._settled(ddl):
                raise Violation(f"I1: {kind} of {row} at {position} into {name} before {ddl.type} at {ddl.position}")
            if ddl.position > position and ddl.position in self._done and not self._background(ddl):
                raise Violation(f"I1: {kind} of {row} at {position} into {name} after {ddl.type} at {ddl.position}")

    def kept(self, life: TableId | None, key: Any) -> None:
        known = self._damaged.pop((life, key), None) if life is not None else None
        if life is not None and known is not None:
            self._cluster.target.majority.lacks(lambda: self._damaged.update({(life, key): known}))

    def taken(self, thread: Thread, name: TableName, life: TableId | None, row: Row, by: Row) -> None:
        """In a replay or beside a copy the target's rows may be later than the one that is written. Otherwise the row that had the value has been passed."""
        if not self.in_order or thread.copies or life is None:
            return
        table, rows = self._source.table_id(life), self._cluster.target.collections[name].rows.values()
        known = [self._source.version_at.get((table, each["v"])) for each in (row, *rows)]
        position, *others = known
        if position is None or self._etcd.in_copy(table) or any(at is None or at > position for at in others):
            return
        raise Violation(f"order: {row} at {position} into {name} before the change that takes its value from {by}")

    def _of_another_life(self, ddl: Ddl, life: TableId) -> bool:
        table_id = self._source.table_id
        of_before = ddl.position < self._etcd.entered.get(life, ddl.position)
        if of_before and ddl.position not in self._etcd.lives and ddl.type in _OF_A_DEFINITION:
            return True  # the table was lost, so nobody recorded it
        named = {id for id in self._etcd.lives.get(ddl.position, ()) if table_id(id) == table_id(life)}
        return bool(named) and life not in named

    def _present(self) -> dict[TableId, Collection]:
        """The collections with the tables' rows, the last one of each table. Of a table that is copied beside, the old one stands still."""
        table_id = self._source.table_id
        return {table_id(id): collection for id, collection in self._present_by_life().items()}

    def _present_by_life(self) -> dict[TableId, Collection]:
        collections = self._cluster.target.collections
        by_name = sorted(collections.items(), key=lambda each: each[0].passing)
        present = {each.table: each for name, each in by_name if each.table is not None and name != GATHERED_TARGET}
        gathered = collections.get(GATHERED_TARGET)
        return present | (parts(gathered, self._source) if gathered is not None else {})

    def _fill(self, created: Collection) -> None:
        """What the target has before the copy: most rows of the source, as they were once, and one of its own."""
        assert created.table is not None, "expected a collection that a copy has created"
        random, rows = self._cluster.machine.random, self._source.by_id[self._source.table_id(created.table)].rows
        there = [key for key in ordered(rows) if random.random() < _THERE_BEFORE]
        created.of_others = {_OF_OTHERS: {"_id": _OF_OTHERS, "u": _OF_OTHERS, "v": 0}}
        created.rows |= {key: {"_id": key, "u": _OF_OTHERS + u, "v": 0} for u, key in enumerate(there, 1)}
        created.rows |= created.of_others
        self._count("target: rows that were there before a copy", len(there))

    def damage(self, random: Random) -> None:
        """Another client deletes or inserts rows at the target. Replicated changes may be wrong afterwards, later changes must not be."""
        for table, collection in self._present().items():
            if self._etcd.in_copy(table) or self._source.by_id[table].name.db in GATHERED:
                continue
            number = random.randrange(KEYS)
            key = random.choice([*collection.rows, self._keys[number]])
            row = collection.rows.get(key)
            if row is not None and (table, row["v"]) in self._source.version_at:
                self._touch(collection, key, None, self._source.version_at[table, row["v"]])
            elif row is None and key not in self._source.by_id[table].rows:
                theirs = {"_id": key, "u": 1000 + number, **self.of_somebody_else(number), "v": 0}
                self._touch(collection, key, theirs, self._source.last_event)

    def _touch(self, collection: Collection, key: Any, row: Row | None, known: Position) -> None:
        assert collection.table is not None, "expected a collection with a table's rows"
        self._count("target: row that somebody else touched")
        self._cluster.machine.note("target", f"somebody else touches {key} of {collection.table}")
        collection.keep(key, row, self._cluster.target.majority)
        self._damaged[collection.table, key] = known
        self._touched.add((collection.table, key))

    @property
    def damaged(self) -> list[tuple[TableId, Any]]:
        """The rows that may still be wrong, of tables that are replicated. A life that has ended has none."""
        living = {table.id for name, table in self._source.tables.items() if self.wants(name)}
        present = self._present_by_life()
        rows = dict.fromkeys((self._source.table_id(life), key) for life, key in self._damaged if life in present)
        return [(table, key) for table, key in rows if table in living]

    @property
    def lettered(self) -> list[tuple[TableId, Any]]:
        """The rows with open letters, of tables that are replicated, by life and key."""
        present = self._present_by_life()
        living = {table.id for name, table in self._source.tables.items() if self.wants(name)}
        return [
            (life, key) for life, key in self._letters.open if life in present and self._source.table_id(life) in living
        ]

    def build_is_sent(self, thread: Thread, name: TableName) -> None:
        """Here and not where it begins: a build has no time limit, so nothing says when its command arrives. Whether it should not have begun by
        then is seen by the indexes at the end.
        """
        if thread.copies is not None:
            self._check_home(thread, thread.copies, f"createIndexes on {name}")

    def ddl(
        self, thread: Thread, copies: TableId | None, name: TableName, what: str, *, late: bool = False
    ) -> DdlEffect:
        self._count(f"DDL done at the target, {'of a copy' if copies else what.split()[0]}")
        if copies is not None:
            if not late:
                self._check_home(thread, copies, f"{what} on {name}")
            return DdlEffect(copies, lambda: None)
        executing = [
            record
            for record in self._etcd.ddls.values()
            if (record.state is DdlState.EXECUTING or (late and _was_refused(record)))
            and (name in record.scope.names or name.db in record.scope.databases)
        ]
        meant = [record for record in executing if _means(record, what)]
        if not meant:
            raise Violation(f"I5: {what} on {name}, but no record of it is executing: {[r.event for r in executing]}")
        record = min(meant, key=lambda each: (each.state is not DdlState.EXECUTING, each.position))
        effect = placed(record.position), name, what
        if effect in self._effects:
            raise Violation(f"I5: {what} on {name} of {record.event} a second time")
        self._check_order(record)
        if not record.background and placed(record.position) not in self._done:
            for life in record.scope.tables:
                self._check_stands_at(life, record)
        self._effects.add(effect)
        self._done[placed(record.position)] += 1
        return DdlEffect(record.event.id, partial(self._forget, effect))

    def _forget(self, effect: tuple[Position, TableName, str]) -> None:
        """An election took it back."""
        self._effects.remove(effect)
        self._done -= Counter([effect[0]])

    def _count(self, what: str, times: int = 1) -> None:
        self._cluster.machine.count(what, times)

    def _check_writer(self, thread: Thread, life: TableId, key: Any) -> None:
        self._check_home(thread, life, f"row {key}")
        last = self._writers.get((life, key), 0)
        if thread.task < last:
            raise Violation(f"I4: row {key} of {life} by an older task than its last writer, in {thread.process}")
        self._writers[life, key] = thread.task

    def _check_home(self, thread: Thread, life: TableId, what: str) -> None:
        node = self.node_of(thread)
        homes = self._etcd.homes(life)
        if homes and node not in homes:
            raise Violation(f"I4: {what} of {life} by {node}, in {thread.process}, though {homes} have it")

    def _check_not_stopped(self, life: TableId, what: str) -> None:
        straggler, rev = self._etcd.stragglers.get(life, (None, 0))
        if straggler is None or not straggler.stopped:
            return
        reports = map(self._etcd.report, self._etcd.homes(life))
        if any(report is not None and report.stops.get(life, 0) >= rev for report in reports):
            raise Violation(f"stops: {what} of {life}, though its node obeys its stop")

    def node_of(self, thread: Thread) -> NodeId:
        if thread.sent_by is not None:
            return NodeId(thread.sent_by)
        permit = self._cluster.resources_by_process[thread.process]._permit
        if permit is None:
            raise Violation(f"I4: a row is written by {thread.process}, which has no task any more")
        return NodeId(child(permit.fence.node_key, LAYOUT.nodes))

    def _check_order(self, record: DdlRecord) -> None:
        ids = lives_in(record)
        for other in self._etcd.ddls.values():
            before = other.position < record.position and other.open
            if before and (other.scope.names & record.scope.names or lives_in(other) & ids):
                raise Violation(f"I5: {record.event} before {other.event}")

    def _check_stands_at(self, life: TableId, record: DdlRecord) -> None:
        table = self._source.table_id(life)
        collection = self._present_by_life().get(life)
        if record.event.type is DdlType.EXCHANGE and self._etcd.in_copy(table):
            raise Violation(f"I2: {record.event} while {table} is being copied")
        if self._etcd.in_copy(table) or collection is None:
            return
        if life in self._etcd.stragglers and self._is_ended(life):
            self._count("DDL of a stopped table that ends")
            return
        due = self._source.by_id[table].rows_before(placed(record.position))
        touched = {key for id, key in self._touched | self._letters.ever if id == life} | collection.of_others.keys()
        if self._source.half_dropped.get(table, record.position) < record.position:
            touched |= due.keys() - collection.rows.keys()
        if _but(collection.rows, touched) != _but(due, touched):
            raise Violation(f"I1: {record.event} while {table} has {collection.rows}, and had {due} there")

    def _is_ended(self, life: TableId) -> bool:
        """By the source, or by Sluice, which copies it anew."""
        table = self._source.table_id(life)
        left = any(record.open and record.event.type is DdlType.LEAVE for record in self._etcd.records_of(life))
        return left or any(self._ends(ddl, table) for ddl in self._touching(table))

    def _touching(self, table: TableId) -> Iterable[Ddl]:
        return (ddl for ddl in self._source.ddls if table in ddl.ids and self._concerns(ddl, table))

    def _ends(self, ddl: Ddl, table: TableId) -> bool:
        return table in ddl.dropped or (ddl.to is not None and not self.wants(ddl.to, ddl.position))

    def _concerns(self, ddl: Ddl, table: TableId) -> bool:
        """A replaced table was in the filter only if the new name is."""
        names = [ddl.to] if ddl.to is not None and table in ddl.dropped else ddl.names
        return any(self.wants(name, ddl.position) for name in names)

    def _settled(self, ddl: Ddl) -> bool:
        """Whether the record says so, or has been folded away."""
        record = self._etcd.record_at(ddl.position)
        if record is not None:
            return not record.open or record.background
        start = self._status.start if self._status else None
        if ddl.position in self._etcd.folded or (start is not None and ddl.position < placed(start)):
            return True
        return (
            self._status is not None
            and self._status.checkpoint is not None
            and ddl.position < placed(self._status.checkpoint)
        )

    def _background(self, ddl: Ddl) -> bool:
        record = self._etcd.record_at(ddl.position)
        return (record is not None and record.background) or (ddl.type is DdlType.CREATE_INDEXES and record is None)

    # what is written to etcd

    def written(self, changes: Iterable[Change]) -> None:
        for change in changes:
            self._etcd.written(change)
        self._excused |= self._etcd.waiting.keys()
        for change in changes:
            if change.key in self._etcd.ddls:
                self._recorded(self._etcd.ddls[change.key])
            if change.key == LAYOUT.status(FEED) and change.now is not None:
                self._check_status(self._cluster.decoder(ChangefeedStatus, change.now))

    def _recorded(self, record: DdlRecord) -> None:
        """A rename that a shard was the last to log, and which is gone, stands where Sluice has placed it. Its record is of any
        type: a rename out of the filter is a drop.
        """
        if record.event.type.own:
            return
        at, ddls = placed(record.position), self._source.ddls
        ids = set(map(self._source.table_id, lives_in(record)))
        for number, ddl in enumerate(ddls):
            known = ddl.position in self._etcd.lives
            if at < ddl.position and ddl.ids & ids and not known and self._source.earliest(ddl) <= at:
                ddls[number] = replace(ddl, position=at)
                self._count("rename without the last shard's entry")

    def lets_differ(self, record: DdlRecord) -> None:
        """A user asks to skip a DDL: the options and indexes of its tables may differ from now on."""
        self._may_differ |= set(map(self._source.table_id, lives_in(record)))

    def known_as(self, table: TableId) -> TableId:
        """Its present life."""
        return self._etcd.known_as(table)

    def _check_status(self, status: ChangefeedStatus) -> None:
        before, self._status = self._status, status
        patterns = len(DATABASES) + (len(GATHERED) if self._agreement.gathered else 0)
        if self._agreement.late and self._late_from is None and status.tables and len(status.tables) > patterns:
            added_at = max(status.taken_in_at, default=status.start)
            self._late_from = placed(added_at) if added_at is not None else None
            self._count("filter: tables are added")
        if before is not None and before.start == status.start:
            _check_succession(before, status)
        if status.checkpoint is None:
            return
        for record in self._etcd.ddls.values():
            if record.open and record.position < status.checkpoint and record.position not in self._excused:
                raise Violation(f"I2: checkpoint {status.checkpoint} is past {record.event}, which is not done")
        if before is None or before.checkpoint != status.checkpoint:
            self._check_downstream(placed(status.checkpoint))
        if status.current_at is not None:
            self._check_lag(status.checkpoint, status.current_at)

    def _check_lag(self, checkpoint: Position, current_at: datetime) -> None:
        """Compares the status with the source at the named moment. Only where the owner reads from the primary."""
        if self._source.from_secondaries:
            return
        last = self._source.last_event_at((current_at - EPOCH).total_seconds())
        if last is not None and last >= placed(checkpoint):
            raise Violation(f"lag: all of {current_at} is to be downstream, but {last} is past {checkpoint}")

    def _check_downstream(self, checkpoint: Position) -> None:
        """Stragglers are downstream up to where their records say; a table whose create waits for a user is not there at all."""
        there, table_id = self._present(), self._source.table_id
        upto = dict.fromkeys(self._source.by_id, checkpoint)
        behind = [(life, placed(straggler.at)) for life, (straggler, _) in self._etcd.stragglers.items()]
        for at, record in self._etcd.open_ddls:
            if (life := record.event.id) is not None and life not in record.scope.tables:
                behind.append((life, placed(at)))
        entering = self._entering
        for life, position in behind:
            upto[table_id(life)] = min(upto.get(table_id(life), checkpoint), position)
        for id, table in self._source.by_id.items():
            if id not in entering:
                self._check_table(id, table, there.get(id), upto[id])

    @property
    def _entering(self) -> set[TableId]:
        """The tables that are about to be copied anew."""
        entering = (record for _, record in self._etcd.open_ddls if record.event.type is DdlType.ENTER)
        return {self._source.table_id(record.event.id) for record in entering if record.event.id is not None}

    def _check_table(self, id: TableId, table: Table, collection: Collection | None, checkpoint: Position) -> None:
        if self._etcd.in_copy(id) or not self._wanted_at(id, checkpoint):
            return
        if collection is None:
            ended = any(ddl.position >= checkpoint and ddl.position in self._done for ddl in self._touching(id))
            if not ended and id not in self._etcd.never_made:
                raise Violation(f"I2: checkpoint {checkpoint}, but table {id} ({table.name}) is not downstream")
            return
        for key, versions in table.versions.items():
            self._check_row(id, key, versions, collection.rows.get(key), checkpoint)

    def _check_row(
        self, table: TableId, key: Any, versions: list[tuple[Position, Row | None]], found: Row | None, at: Position
    ) -> None:
        index = bisect_left(versions, at, key=lambda version: version[0])
        if not index or self._may_be_damaged(table, key, versions[index - 1][0]) or self._has_a_letter(table, key):
            return
        allowed = [row["v"] if row else None for _, row in versions[index - 1 :]]
        moves = any((table, version) in self._source.moved for version in allowed[1:])
        if moves or table in self._source.half_dropped:  # a copy may have read it later than the checkpoint
            allowed.append(None)
        if (found["v"] if found else None) not in allowed:
            raise Violation(
                f"I2: checkpoint {at}, but row {key} of {table} is {found}; expected a version of {allowed}"
            )

    def _has_a_letter(self, table: TableId, key: Any) -> bool:
        return any((life, key) in self._letters.open for life in self._source.ids_of(table))

    def _may_be_damaged(self, table: TableId, key: Any, last: Position) -> bool:
        """Whether a damaged row may still be wrong: no change of it was replicated since, or its table no longer exists at the source."""
        found = (self._damaged.get((life, key)) for life in self._source.ids_of(table))
        known = max((position for position in found if position is not None), default=None)
        gone = all(each.id != table for each in self._source.tables.values())
        return known is not None and (gone or last <= known)

    def sync_point(self, record: Mapping[str, Any], there: Snapshot) -> None:
        def of_others(table: TableId, name: TableName) -> set[Any]:
            collection = self._cluster.target.collections.get(name)
            others = set(collection.of_others) if collection is not None else set()
            return others | {key for life, key in self._touched if self._source.table_id(life) == table}

        SyncJudge(self._cluster, self._agreement, self._name_at, of_others).look(record, there)

    def _wanted_at(self, table: TableId, position: Position) -> bool:
        return self._name_at(table, position) is not None

    def _name_at(self, table: TableId, position: Position) -> TableName | None:
        """Its name, if the table is in the filter just before a position, according to the DDL of this run."""
        name: TableName | None = None
        for ddl in self._source.ddls:
            if ddl.position >= position or table not in ddl.ids:
                continue
            if table in ddl.dropped:
                return None
            if ddl.type is DdlType.RENAME:
                name = ddl.to
            elif ddl.type is DdlType.CREATE:
                [name] = ddl.names
        if name is None or not self.wants(name, position):
            return None
        return None if position == self._late_from and self._is_late(name) else name

    # the end

    @property
    def begun(self) -> bool:
        return self._status is not None and self._status.checkpoint is not None

    @property
    def failed(self) -> str:
        """Why the changefeed has stopped for good."""
        status = self._status
        if status is None or status.lifecycle.state is not State.FAILED or status.lifecycle.error is None:
            return ""
        return f"I7: the changefeed failed: {status.lifecycle.error.code}: {status.lifecycle.error.message}"

    @property
    def lost(self) -> bool:
        """Whether it stopped because the oplog has lost needed events, and this is true."""
        status, needed = self._status, self.needed
        if any(map(self.is_lost, self._etcd.stragglers)) or self._never_looked_up():
            return True
        if status is None or status.lifecycle.error is None or status.lifecycle.error.code != HistoryLost.code:
            return False
        return self._source.has_lost(needed or ClusterTime(0, 0))

    def is_lost(self, life: TableId) -> bool:
        """Whether a straggler says that its rows are lost, and this is true. Too many DDLs may wait for it instead."""
        straggler, _ = self._etcd.stragglers[life]
        begin, error = self._source.begin_of_transactions(placed(straggler.at).ts), straggler.error
        return error is not None and error.code == HistoryLost.code and self._source.has_lost(begin)

    def _never_looked_up(self) -> bool:
        """Whether a rename brought in a table whose definition of then cannot be known any more, its DDL says so, and this is true: the oplog has lost
        it, or the shard that had logged its history is gone. The rest has arrived.
        """
        return self.rest_arrived and any(
            record.event.type is DdlType.UNKNOWN
            and any(word in record.note for word in ("oplog", "history"))
            and self._source.has_lost(placed(at).ts)
            for at, record in self._etcd.open_ddls
        )

    @property
    def diverged(self) -> bool:
        """Whether it stopped because of a row that another client changed, and names that row."""
        status = self._status
        error = status.lifecycle.error if status else None
        if error is None or error.code != Divergence.code:
            return False
        return any(key_text(bson.encode({"_id": key})) in error.message for _, key in self._touched)

    @property
    def needed(self) -> ClusterTime | None:
        """The oldest time that still has to be read. None if that depends on more than the checkpoint."""
        status = self._status
        if status is None or status.checkpoint is None:
            return None
        if any(self._etcd.in_copy(table.id) for table in self._source.tables.values() if self.wants(table.name)):
            return None
        behind = [placed(straggler.at) for straggler, _ in self._etcd.stragglers.values()]
        behind += [placed(position) for position, _ in self._etcd.open_ddls]
        return self._source.begin_of_transactions(min([placed(status.checkpoint), *behind]).ts)

    @property
    def arrived(self) -> bool:
        """Whether the checkpoint has passed all events of the source, all DDLs are done, and no table is behind."""
        if not self.rest_arrived or self._etcd.stragglers or self._etcd.open_ddls:
            return False
        return not any(name.passing for name in self._cluster.target.collections)

    @property
    def rest_arrived(self) -> bool:
        """Whether all that does not wait for a user has arrived."""
        status, source = self._status, self._source
        if status is None or status.checkpoint is None or source.building:
            return False
        if placed(status.checkpoint) <= source.last_event:
            return False
        waiting = self._etcd.waiting
        if not all(at in waiting or at in self._excused for at, _ in self._etcd.open_ddls):
            return False
        lives = frozenset(self._etcd.stragglers).union(*map(lives_in, waiting.values()))
        standing = set(map(source.table_id, lives))
        return not any(
            self._etcd.in_copy(table.id)
            for table in source.tables.values()
            if self.wants(table.name) and table.id not in standing
        )

    def wants(self, name: TableName, at: Position | None = None) -> bool:
        """By the filter of that position, or of now."""
        is_in = self._late_from is not None and (at is None or at >= self._late_from)
        return self._agreement.wants(name) and (is_in or not self._is_late(name))

    def _is_late(self, name: TableName | None) -> bool:
        return name is not None and name.db == self._agreement.late

    def stuck(self) -> str:
        status = self._status
        open_records = [f"{record.event} {record.state}" for record in self._etcd.ddls.values() if record.open]
        lifecycle = status.lifecycle if status else None
        return f"I7: no arrival; status {status and status.checkpoint} {lifecycle}, open {open_records}, barrier {self._etcd.barrier}"

    def differences(self, *, repaired: bool = False) -> list[str]:
        """I6: the differences between the source's tables in the filter and the target. `repaired`: a user has had damaged rows repaired."""
        agreed = self._agreement
        due = {agreed.target(name): table for name, table in self._source.tables.items() if self.wants(name)}
        due.pop(GATHERED_TARGET, None)
        found = {name: each for name, each in self._cluster.target.collections.items() if name != GATHERED_TARGET}
        differences = [f"{name} is missing" for name in due.keys() - found.keys()]
        differences += [f"{name} is too much" for name in found.keys() - due.keys()]
        if agreed.gathered:
            gathered = self._cluster.target.collections.get(GATHERED_TARGET)
            differences += differences_of(gathered, self._source, self._etcd.broken_off | self._etcd.stood)
        for name in sorted(due.keys() & found.keys()):
            table, collection = due[name], found[name]
            rows = table.rows | collection.of_others
            differences += [
                f"{name} row {key}: {collection.rows.get(key)} instead of {rows.get(key)}"
                for key in ordered(rows.keys() | collection.rows.keys())
                if rows.get(key) != collection.rows.get(key)
                and (repaired or not self._may_be_damaged(table.id, key, table.last_change_of(key)))
            ]
            differences += [
                f"{name} {difference}"
                for difference in definition_differences(
                    table.options, table.indexes, collection.options, collection.indexes
                )
                if table.id not in self._may_differ
            ]
        return differences


def _was_refused(record: DdlRecord) -> bool:
    """A build goes on in the target, though its command was interrupted, and refused when it was sent again: also while its table waits for its drop."""
    return record.refused is not None and record.state is not DdlState.DONE


def _check_succession(before: ChangefeedStatus, after: ChangefeedStatus) -> None:
    """Checkpoint and resolved never go back, and the checkpoint does not pass resolved."""
    for what, then, now in (
        ("the checkpoint", before.checkpoint, after.checkpoint),
        ("resolved", before.resolved, after.resolved),
    ):
        if then is not None and (now is None or now < then):
            raise Violation(f"I2: {what} went back from {then} to {now}")
    if after.checkpoint is not None and (after.resolved is None or after.checkpoint > after.resolved):
        raise Violation(f"I2: checkpoint {after.checkpoint} is past resolved {after.resolved}")


def _but(rows: dict[Any, Row], keys: set[Any]) -> dict[Any, Row]:
    return {key: row for key, row in rows.items() if key not in keys}


_VERBS = {
    DdlType.CREATE: "create",
    DdlType.CREATE_INDEXES: "createIndexes",
    DdlType.DROP_INDEXES: "dropIndexes",
    DdlType.MODIFY: "collMod",
    DdlType.DROP: "drop",
    DdlType.DROP_DATABASE: "drop",
    DdlType.EXCHANGE: "rename",
}


def _means(record: DdlRecord, what: str) -> bool:
    """Whether the effect may belong to this DDL. A rename into the filter drops the replaced table."""
    verb = what.split()[0]
    if record.event.type is DdlType.RENAME:
        return verb in ("rename", "drop")
    return _VERBS.get(record.event.type) == verb
