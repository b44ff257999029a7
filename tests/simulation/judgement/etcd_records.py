"""`EtcdRecords`: what etcd says of the changefeed, as the judge sees it being written, and which node has what by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from changefeed.event import DdlType
from changefeed.position import Position
from changefeed.records.copy import CopyRecord, CopyStage
from changefeed.records.ddl import Barrier, DdlRecord, DdlState
from changefeed.records.node import NodeId, NodeRecord, PositionReport
from changefeed.records.status import Straggler
from changefeed.table import TableId
from coordination.etcd.protocol import Change, KeyValue
from coordination.layout import child
from coordination.parts import AssignmentPart
from tests.joined import join_report
from tests.simulation.clockwork.machine import Violation
from tests.simulation.cluster import FEED, LAYOUT, TTL, Cluster
from tests.simulation.source.oplog import placed

_READY_SECONDS = 2 * TTL.total_seconds()


class EtcdRecords:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._decode = cluster.decoder
        self._table_id: Callable[[TableId], TableId] = cluster.source.table_id
        self.barrier: Barrier | None = None
        self.ddls: dict[str, DdlRecord] = {}
        self.folded: set[Position] = set()
        """The DDLs whose records were there and done."""
        self.lives: dict[Position, frozenset[TableId]] = {}
        """The ids by which each DDL's record names its tables."""
        self.entered: dict[TableId, Position] = {}
        """Where the tables that were copied anew have begun again."""
        self.stragglers: dict[TableId, tuple[Straggler, int]] = {}
        """The stragglers by life, each with the revision of its record."""
        self.broken_off: set[TableId] = set()
        """The lives whose copies have begun and have not come to their end."""
        self.stood: set[TableId] = set()
        """The lives that have been behind once: their tables may end where they stand."""
        self.never_made: set[TableId] = set()
        """Tables whose create the target refused until they ended."""
        self._reports: dict[NodeId, PositionReport] = {}
        """Those that somebody has asked for since they were written."""
        self._report_keys: dict[NodeId, dict[str, KeyValue]] = {}
        self._assignments: dict[NodeId, dict[str, KeyValue]] = {}
        self._homes: dict[TableId, set[NodeId]] | None = None
        self._unready_since: dict[NodeId, float] = {}
        self._copied: dict[TableId, set[TableId]] = {}
        """Of tables that a node has, the lives that begin with a copy."""
        self._last_home: dict[TableId, NodeId] = {}
        self._known_as: dict[TableId, TableId] = {}
        self._waiting: dict[Position, DdlRecord] | None = None
        """Both are found anew after a change of what they are found in: the judge asks for them at each step."""
        self._open_ddls: list[tuple[Position, DdlRecord]] | None = None

    def written(self, change: Change) -> None:
        key = change.key
        if key.startswith(LAYOUT.nodes):
            self._joined_or_left(change)
        elif key.startswith(LAYOUT.ddls(FEED)):
            self._waiting = self._open_ddls = None
            if change.now is None:
                gone = self.ddls.pop(key, None)
                self.folded |= {placed(gone.position)} if gone is not None and not gone.open else set()
            else:
                self._recorded(key, self._decode(DdlRecord, change.now))
        elif key.startswith(LAYOUT.assignments(FEED)):
            self._assigned(change)
        elif key.startswith(LAYOUT.copies(FEED)) and change.now and key.count("/") == LAYOUT.copies(FEED).count("/"):
            stage = self._decode(CopyRecord, change.now).stage
            note = self.broken_off.discard if stage is CopyStage.DONE else self.broken_off.add
            note(TableId(child(key, LAYOUT.copies(FEED))))
            self._count(f"copy {stage}")
        elif key.startswith(LAYOUT.stragglers(FEED)):
            self._fell_behind(TableId(child(key, LAYOUT.stragglers(FEED))), change.now)
        elif key.startswith(LAYOUT.positions(FEED)):
            self._reported(NodeId(child(key, LAYOUT.positions(FEED))), change)
        elif key == LAYOUT.barrier(FEED) and change.now is not None:
            self.barrier = self._decode(Barrier, change.now)

    # DDL and stragglers

    def record_at(self, position: Position) -> DdlRecord | None:
        return next((record for record in self.ddls.values() if placed(record.position) == position), None)

    def records_of(self, life: TableId) -> Iterable[DdlRecord]:
        return (record for record in self.ddls.values() if record.event.id == life)

    @property
    def open_ddls(self) -> list[tuple[Position, DdlRecord]]:
        if self._open_ddls is None:
            self._open_ddls = [(record.position, record) for record in self.ddls.values() if record.open]
        return self._open_ddls

    @property
    def waiting(self) -> dict[Position, DdlRecord]:
        """The DDLs that wait for a user: refused ones, those of stragglers, and those whose scopes meet theirs."""
        if self._waiting is None:
            self._waiting = self._found_waiting()
        return self._waiting

    def _found_waiting(self) -> dict[Position, DdlRecord]:
        found: dict[Position, DdlRecord] = {}
        if not self.stragglers and all(record.refused is None for record in self.ddls.values()):
            return found
        for position, record in sorted(self.open_ddls, key=lambda each: each[0].order):
            refused, behind = record.refused is not None, record.scope.tables & self.stragglers.keys()
            if refused or behind or any(record.scope.meets(other.scope) for other in found.values()):
                found[position] = record
        return found

    def _recorded(self, key: str, record: DdlRecord) -> None:
        if record.event.type.own and (key not in self.ddls or not record.open):
            self._count(f"own DDL: {record.event.type} {record.state}")
        self.ddls[key] = record
        self.lives[placed(record.position)] = lives_in(record)
        if record.event.type is DdlType.ENTER and record.event.id is not None:
            self.entered[record.event.id] = placed(record.position)
        if record.state is DdlState.SKIPPED and record.event.type is DdlType.CREATE and record.event.id is not None:
            self.never_made.add(record.event.id)

    def _fell_behind(self, life: TableId, now: KeyValue | None) -> None:
        self._waiting = None
        if now is None:
            self.stragglers.pop(life, None)
            self._count("straggler: has caught up, or ended")
            return
        straggler = self._decode(Straggler, now)
        before, _ = self.stragglers.get(life, (straggler, 0))
        if before.moved_from and straggler.moved_from not in (None, before.moved_from):
            raise Violation(
                f"moves: {life} fails on {straggler.moved_from} and moves, as it did on {before.moved_from}"
            )
        self.stragglers[life] = straggler, now.mod_rev
        self.stood.add(life)
        why = straggler.error.code if straggler.error else "a user asked for it"
        self._count(f"straggler: {f'stopped, {why}' if straggler.stopped else 'goes on, or waits for a DDL'}")

    # nodes

    def homes(self, life: TableId) -> set[NodeId]:
        if self._homes is None:
            self._homes, self._copied = {}, {}
            for node, parts in self._assignments.items():
                for kv in parts.values():
                    for assigned, how in self._decode(AssignmentPart, kv).tables():
                        table = self._table_id(assigned)
                        self._known_as[table] = assigned
                        self._homes.setdefault(assigned, set()).add(node)
                        if how.copy:
                            self._copied.setdefault(table, set()).add(assigned)
        return self._homes.get(life, set())

    def known_as(self, table: TableId) -> TableId:
        """Its present life, or its last one."""
        self.homes(table)  # which finds the lives anew, too
        return self._known_as.get(table, table)

    def in_copy(self, table: TableId) -> bool:
        if not any(map(self.homes, self._cluster.source.ids_of(table))):
            return True
        records = [self._cluster.etcd.get(LAYOUT.copy(FEED, id)) for id in self._copied.get(table, ())]
        return not all(record and self._decode(CopyRecord, record).stage is CopyStage.DONE for record in records)

    def _reported(self, node: NodeId, change: Change) -> None:
        keys = self._report_keys.setdefault(node, {})
        keys.pop(change.key, None)
        if change.now is not None:
            keys[change.key] = change.now
        self._reports.pop(node, None)

    def report(self, node: NodeId) -> PositionReport | None:
        if node not in self._reports:
            keys = self._report_keys.get(node, {})
            main = keys.get(LAYOUT.position(FEED, node))
            if main is None:
                return None
            self._reports[node] = join_report([main, *(kv for kv in keys.values() if kv is not main)])
        return self._reports[node]

    def _joined_or_left(self, change: Change) -> None:
        node = NodeId(child(change.key, LAYOUT.nodes))
        if change.now is None or self._decode(NodeRecord, change.now).ready:
            self._unready_since.pop(node, None)
        else:
            self._unready_since.setdefault(node, self._cluster.machine.now)

    def _assigned(self, change: Change) -> None:
        node = NodeId(child(change.key, LAYOUT.assignments(FEED)))
        parts = self._assignments.setdefault(node, {})
        if change.now is not None:
            self._check_ready(node, parts.get(change.key), change.now)
        if change.now is None:
            parts.pop(change.key, None)
        else:
            parts[change.key] = change.now
            for table, _ in self._decode(AssignmentPart, change.now).tables():
                if self._last_home.setdefault(table, node) != node:
                    self._count("table given to another node")
                    self._last_home[table] = node
        self._homes = None

    def _check_ready(self, node: NodeId, before: KeyValue | None, now: KeyValue) -> None:
        """The owner decides on a state that is at most as old as its lease."""
        since, had = self._unready_since.get(node), before.value if before is not None else None
        if since is None or self._cluster.machine.now - since <= _READY_SECONDS or had == now.value:
            return
        known = {table for table, _ in self._decode(AssignmentPart, before).tables()} if before is not None else set()
        new = {table for table, _ in self._decode(AssignmentPart, now).tables()} - known
        if new:
            raise Violation(f"ready: {sorted(new)} given to {node}, which is not ready since {since:.1f}")

    def _count(self, what: str) -> None:
        self._cluster.machine.count(what, 1)


def lives_in(record: DdlRecord) -> frozenset[TableId]:
    return record.scope.tables | record.scope.apart | ({record.event.id} if record.event.id is not None else set())
