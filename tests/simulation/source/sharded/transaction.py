"""`Transaction`: what a user writes at one time. `commit`: decides one across shards, step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.source.oplog import Operation, shard_place
from tests.simulation.source.sharded.placement import PlacedTable
from tests.simulation.source.sharded.shard import Shard
from tests.simulation.source.tables import Row

if TYPE_CHECKING:
    from tests.simulation.source.sharded.acts import Act
    from tests.simulation.source.sharded.cluster import ClusterSource


@dataclass
class Kept:
    table: PlacedTable
    key: Any
    before: Row | None
    row: Row | None


@dataclass
class Transaction:
    operations: list[tuple[Shard, PlacedTable, Any, Operation]] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)

    @property
    def shards(self) -> list[Shard]:
        return list(dict.fromkeys(shard for shard, *_ in self.operations))

    @property
    def tables(self) -> list[PlacedTable]:
        return list({id(each.table): each.table for each in self.kept}.values())

    def of(self, shard: Shard) -> list[Operation]:
        return [operation for at, _, _, operation in self.operations if at is shard]


def commit(
    cluster: ClusterSource, transaction: Transaction, session: dict[str, Any], parts: int, *, commits: bool
) -> Act:
    """By the coordinator, which may be away for long between the prepares and its decision."""
    random = cluster.machine.random
    coordinator, *others = transaction.shards
    prepared = {}
    for shard in random.sample([coordinator, *others], len(others) + 1):
        cluster.tell(coordinator, shard)
        prepared[shard] = shard.prepare(transaction.of(shard), session, parts=parts)
        yield random.choice((0.0, 0.0, 0.001, 0.02, 0.3))
    for shard, each in prepared.items():
        yield shard, each.index + 1
    cluster.tell_all(prepared, coordinator)
    yield random.choice((0.0, 0.0, 0.001, 0.02, 1.0, 4.0))
    commit_ts = max(each.ts for each in prepared.values()) if commits else None
    if commit_ts is None:
        cluster.machine.count("source: transaction across shards, aborted")
        for kept in reversed(transaction.kept):
            cluster.set_row(kept.table, kept.key, kept.before)
    else:
        cluster.took_effect(transaction, commit_ts)
    for shard in random.sample([coordinator, *others], len(others) + 1):
        cluster.tell(coordinator, shard)
        event = shard_place(commit_ts, len(transaction.of(shard)) - 1) if commit_ts is not None else None
        decided_ts = shard.decide(prepared[shard], commit_ts, event)
        cluster.machine.note(shard.name, f"decides for {commit_ts} at {decided_ts}, prepared at {prepared[shard].ts}")
        for at, table, key, _ in transaction.operations:
            if at is shard:
                table.locked.discard((shard.name, key))
        shard.changed.wake_all()
        yield random.choice((0.0, 0.0, 0.001, 0.02, 0.5, 2.5))
    for table in transaction.tables:
        table.undecided -= 1
    cluster.transactions_open -= 1
