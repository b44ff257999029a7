"""`NodeReports`: the reports about one changefeed in etcd: this node's, which it writes, and those of other nodes.

They are apart from what a node mirrors, so they are read from etcd: the node's own before it writes it for the first time, and after a write
whose outcome is unknown; those of others while a limit is shared with them, once a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from changefeed.position import Position
from changefeed.records.node import NodeId, PositionReport
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableId
from coordination.decoded import Decoded
from coordination.etcd.protocol import Compare
from coordination.fenced import FencedStore
from coordination.layout import Layout
from coordination.parts import report_txns
from coordination.view import Replica

_READ_EVERY = 1.0
_REPORT_EVERY = 0.1


class NodeReports:
    """For one thread, and one node in one session. All moments are monotonic seconds."""

    def __init__(self, store: FencedStore, layout: Layout, id: ChangefeedId, node: NodeId) -> None:
        self._store = store
        self._layout = layout
        self._id = id
        self._node = node
        self._reported: PositionReport | None = None
        self._reported_at = float("-inf")
        self._arrived: Mapping[TableId, Position] = {}
        self.unwritten = True
        """The last report was held back, or there was none."""
        self._written: PositionReport | None = None
        self._knows_written = False
        self._read_at = float("-inf")
        self._found: Mapping[NodeId, PositionReport] = {}

    def report(
        self, report: PositionReport, arrived: Mapping[TableId, Position], compares: Sequence[Compare], now: float
    ) -> None:
        """Writes at most ten reports a second, besides those that a DDL waits for. A report that is held back makes a later tick due.

        `arrived`: the tables that have reached the DDLs that hold them.
        """
        self.unwritten = report != self._reported
        if not self.unwritten:
            return
        if now < self._reported_at + _REPORT_EVERY and arrived.items() <= self._arrived.items():
            return
        self.write(report, compares)
        self._arrived = arrived
        self._reported, self._reported_at, self.unwritten = report, now, False

    def write(self, report: PositionReport, compares: Sequence[Compare]) -> None:
        """Only what has changed is written. The store has settled what it wrote before."""
        before = self._written if self._knows_written else self._read().get(self._node)
        if before is not None:  # a committer that was opened anew counts from its first commit on
            counts = sorted((*before.committed.items(), *report.committed.items()))
            report = replace(report, committed=dict(counts))
        self._knows_written = False
        for ops in report_txns(self._layout.position(self._id, self._node), before, report):
            self._store.commit(ops, compares, apart=True)
        self._written, self._knows_written = report, True

    def of(self, others: AbstractSet[NodeId], now: float) -> Mapping[NodeId, PositionReport | None]:
        """As they were at most a second ago."""
        if others and now >= self._read_at + _READ_EVERY:
            self._found, self._read_at = self._read(), now
        return {node: self._found.get(node) for node in others}

    def _read(self) -> Mapping[NodeId, PositionReport]:
        replica = Replica()
        replica.reset(self._store.range(self._layout.positions(self._id)))
        return Decoded(self._layout).reports(replica.view(), self._id)
