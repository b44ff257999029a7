"""`SyncRecords`: the records of sync points and of tables that are ahead, by the few commands that the product sends, and the target as of each mark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import bson
from bson.timestamp import Timestamp

from changefeed.table import TableName
from sink.mongodb.rows.rows_ahead import ROWS_AHEAD
from sink.mongodb.sync_marks import SYNC_POINTS
from tests.simulation.target.letters import fits
from tests.simulation.target.majority import Majority

Record = dict[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """The target at one time."""

    rows: Mapping[TableName, Mapping[Any, Record]]
    letters: tuple[Record, ...]
    ahead: tuple[Record, ...]


class SyncRecords:
    def __init__(self, majority: Majority) -> None:
        self._majority = majority
        self.kept: dict[TableName, dict[str, Record]] = {SYNC_POINTS: {}, ROWS_AHEAD: {}}
        self.history: dict[Timestamp, Snapshot] = {}
        """At the time of each mark."""

    def update(self, name: TableName, statement: Mapping[str, Any]) -> Record | None:
        """Returns the record as it is then. None: no record fits."""
        query, change, kept = statement["q"], statement["u"], self.kept[name]
        before = kept.get(query["_id"])
        if before is not None and before.get("done") and "done" in query:
            raise AlreadyDone
        if before is None and not statement.get("upsert"):
            return None
        after = {**(before or {"_id": query["_id"]}), **change.get("$set", {})}
        for field, more in change.get("$inc", {}).items():
            after[field] = after.get(field, 0) + more
        for field, value in change.get("$max", {}).items():
            after[field] = max(value, after.get(field, value))
        self._keep(name, query["_id"], bson.decode(bson.encode(after)))
        return kept[query["_id"]]

    def delete(self, name: TableName, condition: Mapping[str, Any]) -> int:
        found = [each["_id"] for each in self.matching(self.kept[name].values(), condition)]
        for id in found:
            self._keep(name, id, None)
        return len(found)

    @staticmethod
    def matching(records: Any, condition: Mapping[str, Any]) -> Iterator[Record]:
        for record in list(records):
            flat = {**record, "source.at": record.get("source", {}).get("at")}
            if all(_meets(flat, name, wanted) for name, wanted in condition.items()):
                yield record

    def _keep(self, name: TableName, id: str, record: Record | None) -> None:
        kept = self.kept[name]
        before = kept.pop(id, None)
        if record is not None:
            kept[id] = record

        def undo() -> None:
            kept.pop(id, None)
            if before is not None:
                kept[id] = before

        self._majority.lacks(undo)


class AlreadyDone(Exception):
    """A mark came after its record was done: an upsert that meets a record of its `_id`."""


def _meets(record: Record, name: str, wanted: Any) -> bool:
    if isinstance(wanted, Mapping) and "$gt" in wanted:
        return name in record and bool(record[name] > wanted["$gt"])
    if isinstance(wanted, Mapping) and "$lte" in wanted:
        return name in record and bool(record[name] <= wanted["$lte"])
    return fits(record, {name: wanted})
