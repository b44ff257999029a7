"""Runs the owner's decisions for far more nodes and tables than one machine has: 1,000 nodes and 1,000,000 tables, in virtual time.

    python -m bench.scale                           1,000 nodes, 1,000,000 tables
    python -m bench.scale --nodes 100 --tables 100000

Real are the decisions (scheduler, progress, barrier), the values that are written, and the CPU time of both. A model are the nodes, which
report at once what they were told, and etcd, whose transactions take a fixed time. Virtual time goes on by the owner's pause between two
ticks, the CPU time of the tick, and its transactions.
"""

from __future__ import annotations

import argparse
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

from rich.console import Console
from rich.table import Table

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Scope
from changefeed.records.node import AssignedTable, NodeId, PositionReport
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from changefeed.records.status import ChangefeedStatus
from changefeed.shards import Shards
from changefeed.table import TableId, TableName
from coordination.etcd.protocol import Op, Put
from coordination.layout import Layout, encode
from coordination.parts import assignment_puts, report_txns
from coordination.task_fence import BUDGET
from owner.ddl.execution import Applied, DdlProgress
from owner.ddl.scope import DdlClassifier
from owner.decision.decide import Decision, PublishBarrier, RecordDdls, ReleaseDdls, decide
from owner.decision.state import ChangefeedState
from owner.etcd_writes import whole_parts
from owner.tables import scheduler
from owner.tables.node_standings import NodeStandings
from owner.tables.progress import Floor, NodeState, TableProgress
from owner.tables.wishes import TableWishes
from schema_store.versions import SchemaVersions
from sink.sink import ARRIVES_WITHIN

_PAUSE = 0.2
_TXN = 0.004
_LAYOUT, _ID = Layout("scale"), ChangefeedId("all")
_START = Position(ClusterTime(1, 0))


@dataclass
class Traffic:
    """What was written to etcd."""

    txns: int = 0
    puts: int = 0
    bytes: int = 0
    largest: int = 0

    def add(self, txns: Iterable[Sequence[Op]]) -> int:
        """The number of these transactions."""
        before = self.txns
        for ops in txns:
            self.txns += 1
            for op in ops:
                if isinstance(op, Put):
                    self.puts += 1
                    self.bytes += len(op.key) + len(op.value)
                    self.largest = max(self.largest, len(op.value))
        return self.txns - before


@dataclass
class Cluster:
    """One changefeed, its owner's memory, and its nodes."""

    tables: Shards[AssignedTable]
    nodes: dict[NodeId, NodeState]
    now: float = 0.0
    rev: int = 1
    resolved: int = 1
    progress: TableProgress = field(default_factory=TableProgress)
    records: dict[Position, DdlRecord] = field(default_factory=dict)
    applied: dict[Position, DdlProgress] = field(default_factory=dict)
    status: ChangefeedStatus = field(
        default_factory=lambda: ChangefeedStatus(checkpoint=_START, resolved=_START, run=1, info_version=1, epoch=1)
    )
    owner: Traffic = field(default_factory=Traffic)
    processors: Traffic = field(default_factory=Traffic)
    standings: NodeStandings = field(default_factory=NodeStandings)
    ticks: int = 0
    cpu: float = 0.0
    slowest: float = 0.0

    @classmethod
    def of(cls, nodes: int, tables: int) -> Cluster:
        start = AssignedTable(start=_START)
        random = Random(1)
        ids = (TableId(uuid.UUID(int=random.getrandbits(128)).hex) for _ in range(tables))
        return cls(
            Shards((table, start) for table in ids), {NodeId(f"n{number}-1"): NodeState() for number in range(nodes)}
        )

    def tick(self) -> None:
        """One tick of the owner, and the reports of the nodes after it."""
        self.resolved += 1
        begun_at = time.process_time()
        written = self._owned()
        took = time.process_time() - begun_at
        self.ticks, self.cpu, self.slowest = self.ticks + 1, self.cpu + took, max(self.slowest, took)
        self.now += _PAUSE + took + written * _TXN
        self._report()

    def _owned(self) -> int:
        floor = Floor(_START, self.records.values())
        self.progress = self.progress.next(self.tables, self.nodes, floor)
        self.standings = self.standings.next(self.nodes, 1, self.now)
        written = self._decided(self._decision())
        actions = scheduler.decide(self.progress, {}, now=self.now, margin=BUDGET + ARRIVES_WITHIN)
        before = {node: state.assignment for node, state in self.nodes.items()}
        after = scheduler.assignments_after(before, actions)
        puts = [
            put
            for node, assignment in after.items()
            for put in assignment_puts(_LAYOUT.assignment(_ID, node), before[node], assignment)
        ]
        written += self.owner.add(whole_parts(puts))
        self.rev += written
        for node, assignment in after.items():
            state = self.nodes[node]
            self.nodes[node] = NodeState(
                assignment=assignment, assignment_rev=self.rev, report=state.report, gone_at=state.gone_at
            )
        for action in actions:
            if isinstance(action, scheduler.ForgetNode):
                del self.nodes[action.node]
        return written

    def _decision(self) -> Decision:
        state = ChangefeedState(
            epoch=1,
            info=_INFO,
            status=self.status,
            barrier=None,
            records=self.records,
            wishes=TableWishes(replicated=self.tables.keys()),
            node_errors=self.standings.errors(self.nodes, 1, self.now),
            checkpoints=self.progress,
            tip=SchemaVersions(),
            arrived=(),
            resolved=Position(ClusterTime(self.resolved, 0)),
            executions=self.applied,
        )
        return decide(state, _CLASSIFIER, now=datetime.now(UTC), monotonic=self.now, random=Random(1))

    def _decided(self, decision: Decision) -> int:
        written: list[list[Op]] = []
        for action in decision.actions:
            match action:
                case PublishBarrier(barrier):
                    written.append([Put(_LAYOUT.barrier(_ID), encode(barrier))])
                case ReleaseDdls(records, barrier):
                    puts = [Put(_LAYOUT.ddl(_ID, record.position), encode(record)) for record in records]
                    written.append([*puts, Put(_LAYOUT.barrier(_ID), encode(barrier))])
                    self.records |= {record.position: record for record in records}
                case RecordDdls():
                    raise AssertionError("no event arrives")
                case _:
                    pass
        return self.owner.add(written)

    def _report(self) -> None:
        at = Position(ClusterTime(self.resolved, 0))
        held = {
            table: record.position for record in self.records.values() if record.open for table in record.scope.tables
        }
        for node, state in self.nodes.items():
            if state.gone_at is not None:
                continue
            mine = {table: place for table, place in held.items() if table in state.assignment.tables}
            report = PositionReport(
                run=1, barrier_rev=self.rev, assignment_rev=state.assignment_rev, checkpoint=at, exceptions=mine
            )
            self.processors.add(report_txns(_LAYOUT.position(_ID, node), state.report, report))
            self.nodes[node] = NodeState(
                assignment=state.assignment, assignment_rev=state.assignment_rev, report=report
            )

    def kill(self, count: int) -> None:
        """Their leases have just expired."""
        for node in list(self.nodes)[:count]:
            state = self.nodes[node]
            self.nodes[node] = NodeState(
                assignment=state.assignment, assignment_rev=state.assignment_rev, report=state.report, gone_at=self.now
            )

    @property
    def homeless(self) -> int:
        gone = sum(len(state.assignment.tables) for state in self.nodes.values() if state.gone_at is not None)
        return len(self.progress.unassigned) + gone

    @property
    def settled(self) -> bool:
        reported = all(
            state.report is not None and state.report.assignment_rev >= state.assignment_rev
            for state in self.nodes.values()
            if state.gone_at is None
        )
        return self.homeless == 0 and reported and self.progress.tables is self.tables

    def until(self, over: Callable[[], bool]) -> float:
        begun_at = self.now
        self.tick()
        while not over():
            self.tick()
        return self.now - begun_at

    def measured(self, name: str, run: Callable[[], float]) -> Measured:
        owner, processors = Traffic(), Traffic()
        self.owner, self.processors = owner, processors
        self.ticks, self.cpu, self.slowest = 0, 0.0, 0.0
        seconds = run()
        return Measured(name, seconds, self.ticks, self.cpu, self.slowest, owner, processors)


@dataclass(frozen=True)
class Measured:
    name: str
    seconds: float
    ticks: int
    cpu: float
    slowest: float
    owner: Traffic
    processors: Traffic


def _ddl(cluster: Cluster) -> float:
    """A collMod of one table, from its record to its release. The target answers at once."""
    table = next(iter(cluster.tables))
    position = Position(ClusterTime(cluster.resolved, 5))
    event = DdlEvent(position=position, type=DdlType.MODIFY, db="d", table=TableName("d", "t"), id=table)
    record = DdlRecord(
        event=event, scope=Scope(tables=frozenset({table})), state=DdlState.EXECUTING, seen_at=datetime.now(UTC)
    )
    cluster.owner.add([[Put(_LAYOUT.ddl(_ID, position), encode(record))]])
    cluster.records[position] = record
    cluster.applied[position] = Applied("")
    took = cluster.until(lambda: not cluster.records[position].open)
    cluster.records.clear()
    cluster.applied.clear()
    return took


def phases(cluster: Cluster) -> Iterator[Measured]:
    yield cluster.measured("first assignment", lambda: cluster.until(lambda: cluster.settled))
    yield cluster.measured("following, 10 s", lambda: _following(cluster, 10.0))
    yield cluster.measured("one DDL", lambda: _ddl(cluster))
    dying = max(1, len(cluster.nodes) // 10)
    cluster.kill(dying)
    yield cluster.measured(f"{dying} nodes die at once", lambda: cluster.until(lambda: cluster.settled))


def _following(cluster: Cluster, seconds: float) -> float:
    end = cluster.now + seconds
    return cluster.until(lambda: cluster.now >= end)


_INFO = ChangefeedInfo(
    configuration=Configuration.parse({"id": "all", "source": "mongodb://s", "sink": "blackhole://"}),
    created_at=datetime.now(UTC),
)
_CLASSIFIER = DdlClassifier(
    filter=_INFO.configuration.filter, routes=_INFO.configuration.routes, background_indexes=True
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--tables", type=int, default=1_000_000)
    chosen = parser.parse_args(arguments)
    cluster = Cluster.of(chosen.nodes, chosen.tables)
    table = Table(
        "phase",
        "virtual s",
        "ticks",
        "CPU ms/tick",
        "slowest ms",
        "owner txns",
        "owner KB",
        "largest B",
        "nodes' txns",
        "nodes' KB",
    )
    for row in phases(cluster):
        numbers = (
            row.seconds,
            row.ticks,
            row.cpu / row.ticks * 1e3,
            row.slowest * 1e3,
            row.owner.txns,
            row.owner.bytes / 1e3,
        )
        sizes = (max(row.owner.largest, row.processors.largest), row.processors.txns, row.processors.bytes / 1e3)
        table.add_row(
            row.name,
            *(f"{number:,.1f}" if isinstance(number, float) else f"{number:,}" for number in (*numbers, *sizes)),
        )
    Console(width=180).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
