"""`decide`: which node replicates which table. Pure.

A table changes its node in two phases, so that two nodes never have it at once:

    n1: {A}, n2: {}     ──Withdraw──▶   n1: {A leaving}       n1 starts no further job of A, finishes the running one, reports
                                                              released {A: 7} under that assignment
                        ──Assign────▶   n1: {}, n2: {A from 7}    both nodes in one transaction

A node whose lease is gone reports nothing more, but its last tasks may still write for a while: its tables are assigned to other nodes
once the agreed margin has passed since this owner noticed. A new owner waits for the whole margin again.

The only memory is in etcd: leaving tables, move requests, reports. So a new owner decides the same, and each prefix of the actions leaves
a state from which the next decision goes on. An action changes the entries of one table, and these are in the same part of each node's
assignment (`coordination.layout`). The actions are carried out part by part, so each transaction contains whole hand-overs, however many
tables a decision moves.

Policies, in order of precedence:

    ATableThatHasEndedIsRemoved
    ATableWithoutANodeIsAssigned                to the requested node, else to the one with the fewest tables; ties by id
    ARequestedMoveIsMade
    ANodeThatTakesNoTablesGivesUpEverything     one that drains or is unfit; unless no other node takes tables
    NodesAreKeptEven                            only beyond a tolerance, few tables at a time, until even; tables in copy last
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice
from typing import TypeAlias

from changefeed.records.node import AssignedTable, Assignment, NodeId
from changefeed.shards import Shards
from changefeed.table import TableId
from owner.tables.progress import NodeState, TableProgress

MOST_ASSIGNED = 25_000
"""In one decision, so that a tick stays short: the other tables wait for the next one."""
MOST_REBALANCING = 16
"""The most tables that move at one time only to keep the nodes even."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Assign a table to a node; in the same transaction take it from the node that had it."""

    table: TableId
    node: NodeId
    assigned: AssignedTable
    taken_from: NodeId | None = None


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Ask a node to give a table up."""

    table: TableId
    node: NodeId


@dataclass(frozen=True, slots=True)
class Remove:
    """Take a table that has ended from its node."""

    table: TableId
    node: NodeId


@dataclass(frozen=True, slots=True)
class ForgetMove:
    """A requested move is done, or no longer possible: delete the request."""

    table: TableId


@dataclass(frozen=True, slots=True)
class ForgetNode:
    """Delete the assignment and the report that a node left behind; no table depends on them any more."""

    node: NodeId


SchedulerAction: TypeAlias = Assign | Withdraw | Remove | ForgetMove | ForgetNode


def decide(
    progress: TableProgress, moves: Mapping[TableId, NodeId], *, now: float, margin: timedelta
) -> tuple[SchedulerAction, ...]:
    """`moves`: the requests in etcd. `now`: this owner's monotonic clock."""
    actions: list[SchedulerAction] = [Remove(table, progress.home[table]) for table in sorted(progress.ended)]
    actions += [ForgetMove(table) for table in sorted(moves) if _settled(progress, table, moves[table])]
    actions += [
        ForgetNode(node)
        for node, state in sorted(progress.nodes.items())
        if state.gone_at is not None and not state.assignment.tables
    ]
    loads = _Loads(progress)
    if loads.counts:
        assigned = _assign(progress, moves, loads, lost_before=now - margin.total_seconds())
        actions += islice(assigned, MOST_ASSIGNED)
        arrived = frozenset(loads.placed)
        if len(arrived) < MOST_ASSIGNED:
            leaving = {**_drained(progress), **_requested(progress, moves, loads)}
            loads.expect(progress, moves, leaving)
            actions += leaving.values()
            actions += _rebalanced(progress, moves.keys() | leaving.keys(), arrived, loads)
    return tuple(actions)


class _Loads:
    """How many tables each node that takes tables has, and will have once all moving tables have arrived."""

    def __init__(self, progress: TableProgress) -> None:
        self.counts: dict[NodeId, int] = {
            node: len(state.assignment.tables) - len(state.assignment.leaving)
            for node, state in progress.nodes.items()
            if state.takes_tables
        }
        self._heap = [(count, node) for node, count in self.counts.items()]
        heapq.heapify(self._heap)
        self.placed: set[TableId] = set()

    def place(self, table: TableId, asked_for: NodeId | None) -> NodeId:
        node = asked_for if asked_for in self.counts else self._least()
        self.change(node, 1)
        self.placed.add(table)
        return node

    def change(self, node: NodeId, by: int) -> None:
        self.counts[node] += by
        heapq.heappush(self._heap, (self.counts[node], node))

    def expect(
        self, progress: TableProgress, moves: Mapping[TableId, NodeId], withdrawn: Mapping[TableId, Withdraw]
    ) -> None:
        """Counts the moving tables without a new node: each one will be placed in the same way as the tables that are placed now."""
        for table, withdraw in withdrawn.items():
            if withdraw.node in self.counts:
                self.change(withdraw.node, -1)
            self.place(table, moves.get(table))
        for state in progress.nodes.values():
            moving = state.assignment.leaving if state.gone_at is None else state.assignment.tables.keys()
            for table in moving - self.placed:
                self.place(table, moves.get(table))

    def _least(self) -> NodeId:
        while self.counts[self._heap[0][1]] != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][1]


def _settled(progress: TableProgress, table: TableId, target: NodeId) -> bool:
    state = progress.nodes.get(target)
    if table not in progress.tables or state is None or not state.takes_tables:
        return True
    return progress.home.get(table) == target and table not in state.assignment.leaving


def _assign(
    progress: TableProgress, moves: Mapping[TableId, NodeId], loads: _Loads, *, lost_before: float
) -> Iterator[Assign]:
    for table in heapq.nsmallest(MOST_ASSIGNED, progress.unassigned):
        yield Assign(table, loads.place(table, moves.get(table)), progress.tables[table])
    for node, state in sorted(progress.nodes.items()):
        for table in sorted(_given_up(progress, state, lost_before=lost_before)):
            checkpoint = progress.of(table)
            assert checkpoint is not None
            assigned = replace(state.assignment.tables[table], start=checkpoint)
            yield Assign(table, loads.place(table, moves.get(table)), assigned, taken_from=node)


def _given_up(progress: TableProgress, state: NodeState, *, lost_before: float) -> Iterator[TableId]:
    if state.gone_at is not None and state.gone_at <= lost_before:
        given_up: Iterable[TableId] = state.assignment.tables
    else:
        given_up = (table for table in state.assignment.leaving if progress.released(table))
    return (table for table in given_up if table in progress.tables)


def _requested(progress: TableProgress, moves: Mapping[TableId, NodeId], loads: _Loads) -> dict[TableId, Withdraw]:
    return {
        table: Withdraw(table, node)
        for table, target in sorted(moves.items())
        if target in loads.counts
        and table in progress.tables
        and (node := progress.home.get(table, target)) != target
        and _stays(progress.nodes[node], table)
    }


def _stays(state: NodeState, table: TableId) -> bool:
    return state.gone_at is None and table not in state.assignment.leaving


def _drained(progress: TableProgress) -> dict[TableId, Withdraw]:
    return {
        table: Withdraw(table, node)
        for node, state in sorted(progress.nodes.items())
        if state.gone_at is None and not state.takes_tables
        for table in sorted(state.assignment.tables.keys() - state.assignment.leaving)
        if table in progress.tables
    }


def _rebalanced(
    progress: TableProgress, other_moves: AbstractSet[TableId], arrived: AbstractSet[TableId], loads: _Loads
) -> Iterator[Withdraw]:
    """Once started, it goes on until the nodes are even. A table that leaves a node which takes tables shows that it has started."""
    leaving = {table for node in loads.counts for table in progress.nodes[node].assignment.leaving - other_moves}
    moving = len(leaving - arrived)
    tolerance = 1 if leaving else max(1, sum(loads.counts.values()) // len(loads.counts) // 5)
    candidates: dict[NodeId, Iterator[TableId]] = {}
    while moving < MOST_REBALANCING:
        fullest = max(loads.counts, key=lambda node: (loads.counts[node], node))
        emptiest = min(loads.counts, key=lambda node: (loads.counts[node], node))
        if loads.counts[fullest] - loads.counts[emptiest] <= tolerance:
            return
        if fullest not in candidates:
            candidates[fullest] = _movable(progress, progress.nodes[fullest], other_moves)
        table = next(candidates[fullest], None)
        if table is None:
            return
        yield Withdraw(table, fullest)
        loads.change(fullest, -1)
        loads.change(emptiest, 1)
        moving += 1
        tolerance = 1


def _movable(progress: TableProgress, state: NodeState, but: AbstractSet[TableId]) -> Iterator[TableId]:
    tables = state.assignment.tables
    settled = (table for table in tables.keys() - state.assignment.leaving - but if table in progress.tables)
    return iter(heapq.nsmallest(MOST_REBALANCING, settled, key=lambda table: (tables[table].copy, table)))


def assignments_after(
    assignments: Mapping[NodeId, Assignment], actions: Iterable[SchedulerAction]
) -> dict[NodeId, Assignment]:
    """The assignments to write: those that the actions change, as they are after the actions."""
    drafts: dict[NodeId, _AssignmentDraft] = {}

    def draft(node: NodeId) -> _AssignmentDraft:
        if node not in drafts:
            known = assignments.get(node, Assignment())
            drafts[node] = _AssignmentDraft(known)
        return drafts[node]

    for action in actions:
        match action:
            case Assign(table, node, assigned, taken_from):
                if taken_from is not None:
                    draft(taken_from).remove(table)
                draft(node).given[table] = assigned
            case Withdraw(table, node):
                draft(node).leaving.add(table)
            case Remove(table, node):
                draft(node).remove(table)
            case ForgetMove() | ForgetNode():
                pass
    return {node: drafted.finish() for node, drafted in drafts.items()}


class _AssignmentDraft:
    def __init__(self, before: Assignment) -> None:
        self._before = before
        self.given: dict[TableId, AssignedTable] = {}
        self._removed = set[TableId]()
        self.leaving = set(before.leaving)

    def remove(self, table: TableId) -> None:
        self._removed.add(table)
        self.leaving.discard(table)

    def finish(self) -> Assignment:
        before = self._before.tables
        known = before if isinstance(before, Shards) else Shards(before)
        return Assignment(
            tables=known.but(self.given, self._removed - self.given.keys()), leaving=frozenset(self.leaving)
        )
