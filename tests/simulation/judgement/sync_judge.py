"""`SyncJudge`: a record that says that source and target were equal is held against both of them, as they were at its two times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.records.sync_point import SyncPoints
from changefeed.table import TableId, TableName
from coordination.layout import decode
from tests.simulation.clockwork.machine import Violation
from tests.simulation.cluster import FEED, LAYOUT, Cluster
from tests.simulation.judgement.agreement import GATHERED_TARGET, Agreement
from tests.simulation.source.row_keys import ordered
from tests.simulation.target.sync_records import Snapshot

NameAt = Callable[[TableId, Position], TableName | None]
"""The name of a table in the filter just before a position. None: it is not there."""


@dataclass(frozen=True)
class SyncJudge:
    cluster: Cluster
    agreement: Agreement
    name_at: NameAt
    of_others: Callable[[TableId, TableName], set[Any]]
    """The keys of rows that another client has touched. Their repair may come late to a point, but never be from after it."""

    def look(self, record: Mapping[str, Any], there: Snapshot) -> None:
        at_ts = ClusterTime.from_bson(record["source"]["at"])
        self._check_recorded(at_ts, record)
        excepted = {
            side: {TableName.parse(name) for table in record["except"] for name in table[side]}
            for side in ("source", "target")
        }
        self.cluster.machine.count("sync point: with excepted tables" if record["except"] else "sync point: whole")
        due = self._due(Position(at_ts.next()), excepted["source"])
        left_out = excepted["target"] | {GATHERED_TARGET} | set(map(self.agreement.target, excepted["source"]))
        for name in {*due, *there.rows} - left_out:
            if not name.passing:
                self._compare(at_ts, name, due.get(name), there.rows.get(name))

    def _check_recorded(self, at_ts: ClusterTime, record: Mapping[str, Any]) -> None:
        """The term that etcd knows is the one whose time counts."""
        stored = self.cluster.etcd.get(LAYOUT.sync(FEED))
        newest = decode(SyncPoints, stored).newest if stored is not None else None
        if newest is None or newest.source < at_ts:
            raise Violation(f"sync: the target has a point at {at_ts}, and etcd has {newest}")
        if newest.source == at_ts and newest.target.to_bson() != record["target"]["at"]:
            raise Violation(
                f"sync: the point at {at_ts} is {record['target']} in the target, and {newest.target} in etcd"
            )

    def _due(self, place: Position, excepted: AbstractSet[TableName]) -> dict[TableName, TableId]:
        names = ((table, self.name_at(table, place)) for table in self.cluster.source.by_id)
        wanted = ((table, name) for table, name in names if name is not None and name not in excepted)
        return {self.agreement.target(name): table for table, name in wanted}

    def _compare(
        self, at_ts: ClusterTime, name: TableName, table: TableId | None, found: Mapping[Any, Any] | None
    ) -> None:
        if table is None or found is None:
            sides = "the source has no" if table is None else "the target has no"
            raise Violation(f"sync: at {at_ts} {sides} {name}")
        place, others = Position(at_ts.next()), self.of_others(table, name)
        versions = self.cluster.source.by_id[table].versions
        for key in ordered(found.keys() & others):
            written = [at for at, row in versions.get(key, ()) if row == found[key]]
            if written and min(written) >= place:
                raise Violation(
                    f"sync: at {at_ts} row {key} of {name} is {found[key]}, which the source has had since {written}"
                )
        rows = self.cluster.source.by_id[table].rows_before(place)
        for key in ordered((rows.keys() | found.keys()) - others):
            if rows.get(key) != found.get(key):
                raise Violation(f"sync: at {at_ts} row {key} of {name} is {found.get(key)} instead of {rows.get(key)}")
        self.cluster.machine.count("sync point: tables compared")
