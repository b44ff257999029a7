"""`NodeStandings`: which nodes fail one changefeed while others serve it. Pure.

A node may run jobs and still not do for a changefeed: its network does not reach the source, or its executors die of each window. If other
nodes do what it cannot, the fault is its own, and its tables are better off with them:

    n1 reports an error for PATIENCE, n2's tables move on           n1 fails the changefeed: its tables move, as in a drain
    the same, and n2's tables wait, or it has none; it reaches both as well
    n1 and n2 report errors, or nothing moves anywhere              nobody's fault: the source or the target is down. No table moves
    n1 has no tables left, and reports that it reaches both again   n1 gets tables again, once HOLD has passed
    n1 fails again                                                  it waits for twice as long
    n1's tables have moved to n2, and n2 reports errors now         it reaches both: the trouble came with a table. None moves for it again

A new owner knows nothing of this, and finds it out again. Only retryable errors count: the others are the changefeed's, or a table's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from changefeed.errors import PipelineUnavailable
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.node import NodeId, NodeRecord, PositionReport
from changefeed.table import TableId
from owner.tables.progress import NodeState

PATIENCE = timedelta(seconds=20)
"""More than an election at the source or the target takes: all nodes wait for that, and some notice it first."""
SERVES_FOR = timedelta(seconds=10)
"""How long a node counts as serving after its last step."""
INHERITS = timedelta(minutes=2)
"""How long after a node's failure its tables may take to arrive on another node, and to fail there."""
HOLD = timedelta(minutes=1)
LONGEST_HOLD = timedelta(minutes=30)
_FORGET = 2
"""An old failure does not count any more after so many times the longest hold."""

_Place = tuple[Position, Mapping[TableId, Position]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStanding:
    """Of one node. All moments are monotonic seconds of this owner."""

    place: _Place | None = None
    moved_at: float = float("-inf")
    """When its tables last moved on, without an error."""
    reaches: bool = False
    """It has looked at source and target, and found both. It has nothing to do, or its windows fail nevertheless."""
    erring_since: float | None = None
    erred_at: float = float("-inf")
    """A window that has nothing to write clears its node's error, though the next one fails: an error is over once none was seen for a while."""
    failing: bool = False
    failed_at: float = float("-inf")
    times: int = 0

    def may_return(self, now: float) -> bool:
        hold = min(HOLD * 2 ** min(self.times - 1, 10), LONGEST_HOLD)
        return self.erring_since is None and now - self.failed_at >= hold.total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStandings:
    of: Mapping[NodeId, NodeStanding] = field(default_factory=dict)

    def next(self, nodes: Mapping[NodeId, NodeState], run: int, now: float) -> NodeStandings:
        """`nodes`: as etcd has them now. `run`: of the pipelines."""
        living = {node: state for node, state in nodes.items() if state.gone_at is None}
        seen = {node: _seen(self.of.get(node, NodeStanding()), state, run, now) for node, state in living.items()}
        serving = {node for node, it in seen.items() if _serves(it, now)}
        others = {node: bool(serving - {node}) and not _inherited(node, seen) for node in seen}
        return NodeStandings(of={node: _judged(it, others[node], now) for node, it in seen.items()})

    def failing(self, processors: Mapping[NodeId, NodeRecord]) -> frozenset[NodeId]:
        """The nodes that are to have no tables. None if no other node takes any."""
        failing = frozenset(node for node, it in self.of.items() if it.failing)
        others = any(record.takes_tables for node, record in processors.items() if node not in failing)
        return failing if others else frozenset()

    def errors(self, nodes: Mapping[NodeId, NodeState], run: int, now: float) -> list[ErrorReport]:
        """The errors that nodes with tables report, each with its node's name. An error is the node's own while another node serves."""
        serving = {node for node, it in self.of.items() if _serves(it, now)}
        return [
            error.on(node, alone=bool(serving - {node}))
            for node, state in sorted(nodes.items())
            if state.gone_at is None and state.assignment.tables and (error := _error(state.report, run)) is not None
        ]


def without_nodes(processors: Mapping[NodeId, NodeRecord]) -> PipelineUnavailable | None:
    """The error of a changefeed whose tables no node can run. A node that is just starting is no reason yet."""
    if any(record.takes_tables for record in processors.values()):
        return None
    reasons = [f"{node}: {why}" for node, why in sorted(_reasons(processors))]
    if not reasons:
        return None
    return PipelineUnavailable(f"no node can run its tables, which stay where they are; {'; '.join(reasons)}")


def _reasons(processors: Mapping[NodeId, NodeRecord]) -> Iterator[tuple[NodeId, str]]:
    for node, record in processors.items():
        if record.health is not None and not record.ready and record.health.error is not None:
            yield node, record.health.error.message


def _error(report: PositionReport | None, run: int) -> ErrorReport | None:
    return report.error if report is not None and report.run == run else None


def _seen(before: NodeStanding, state: NodeState, run: int, now: float) -> NodeStanding:
    report = state.report
    if report is None or report.run != run:
        return replace(before, place=None, erring_since=None, reaches=False)
    error, place = report.error, (report.checkpoint, report.exceptions)
    errs = error is not None and error.retryable and not error.passes_at_once and error.table is None
    since = before.erring_since if before.erring_since is not None else now
    erred_at = now if errs else before.erred_at
    lasts = errs or (before.erring_since is not None and now - erred_at < PATIENCE.total_seconds())
    moved = bool(state.assignment.tables) and before.place is not None and place != before.place and error is None
    return replace(
        before,
        place=place,
        moved_at=now if moved else before.moved_at,
        reaches=report.reaches and state.takes_tables,
        erring_since=since if lasts else None,
        erred_at=erred_at,
    )


def _serves(it: NodeStanding, now: float) -> bool:
    return it.erring_since is None and (it.reaches or now - it.moved_at < SERVES_FOR.total_seconds())


def _inherited(node: NodeId, seen: Mapping[NodeId, NodeStanding]) -> bool:
    """Whether its errors began when it got the tables of a node that failed, and it reaches both without them."""
    since = seen[node].erring_since
    if since is None or not seen[node].reaches:
        return False
    ends = INHERITS.total_seconds()
    return any(it.failed_at <= since <= it.failed_at + ends for other, it in seen.items() if other != node)


def _judged(it: NodeStanding, others_serve: bool, now: float) -> NodeStanding:
    if it.failing:
        return replace(it, failing=False) if it.may_return(now) else it
    if it.erring_since is None or not others_serve or now - it.erring_since < PATIENCE.total_seconds():
        return it
    recent = now - it.failed_at < _FORGET * LONGEST_HOLD.total_seconds()
    return replace(it, failing=True, failed_at=now, times=it.times + 1 if recent else 1)
