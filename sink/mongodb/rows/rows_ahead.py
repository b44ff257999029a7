"""`RowsAhead`: says in the target which tables hold rows that were read at the source, before such a row is written.

A row that is repaired, or that had a dead letter, is written as the source has it now: it holds changes that its table has not reached yet. Where
source and target have to be equal (`docs/reference/sync-points.md`) such a table does not count until it has passed the time of that read. Nobody but
the target can say so in time: the task may end, its node may die, and the table may move before anything is reported.

    sluice.rows_ahead    {_id: "<changefeed>/<table id>", until: the time}

The note is on a majority before the row is sent, so whoever sees the row sees the note. It is not one of the writes that wait for the majority
together: those may be split by an election.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from changefeed.cluster_time import ClusterTime
from changefeed.table import TableId, TableName
from sink.mongodb.commander import Commander

ROWS_AHEAD = TableName("sluice", "rows_ahead")
_MARGIN_SECONDS = 5
"""A note also covers rows that are read so much later: not each of many repaired rows needs one of its own."""


@dataclass(slots=True)
class RowsAhead:
    """Of one writer. `changefeed` None: nobody compares, so nothing is noted."""

    changefeed: str | None
    _noted: dict[TableId, ClusterTime] = field(default_factory=dict)

    def note(self, commander: Commander, table: TableId, read_ts: ClusterTime) -> None:
        """Called before a row of the table is written as the source had it then."""
        if self.changefeed is None or read_ts <= self._noted.get(table, ClusterTime(0, 0)):
            return
        until = ClusterTime(read_ts.seconds + _MARGIN_SECONDS, read_ts.increment)
        command: dict[str, Any] = {
            "findAndModify": ROWS_AHEAD.coll,
            "query": {"_id": f"{self.changefeed}/{table}"},
            "update": {"$max": {"until": until.to_bson()}},
            "upsert": True,
            "writeConcern": {"w": "majority"},
        }
        commander.send(ROWS_AHEAD.db, command, f"noting that rows of {table} are ahead")
        self._noted[table] = until
