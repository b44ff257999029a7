"""`OplogDdlWatch`: DDL by ranges of the oplog. A range is resolved as soon as it is read.

    hello of the member        majority-committed up to 100.7
    find [100.5, 100.8)        commands and writes to views in it: a rename at 100.6
    batch                      events [rename], resolved 100.8: just after the majority's point, so that its last entry is below it

It needs no notes: a range below the majority's point is complete when its cursor is exhausted. The waits between polls are short while
the source writes, and grow while it is idle.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import chain

import bson
from pymongo.errors import ExecutionTimeout

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost
from changefeed.event import DdlEvent
from changefeed.position import Position
from source.connection import HELLO, Client, read_command
from source.ddl_description import ANY_TEXT
from source.ddl_watch import DdlBatch
from source.errors import translated
from source.majority_watch import MajorityWatch
from source.oplog.command_entry import CommandEntry, holds_command, is_command
from source.oplog.ddl_entry import WITH_ROWS, Entry, Telling, ddls_of_entry
from source.oplog.find import commands, entries, entry_at, parts
from source.oplog.window import majority_time_of, oldest_time_for_message
from source.read_size import Stride

_SHORTEST_WAIT, _LONGEST_WAIT = 0.12, 0.45
"""Between two polls. Each costs the owner 1 to 2 ms of CPU, and the work that follows from it costs as much again on all nodes."""
WANTED: Mapping[str, object] = {
    "$or": [
        commands(
            {"o.applyOps": {"$exists": False}},
            {"o.applyOps.op": "c"},
            {"o.partialTxn": {"$ne": True}, "prevOpTime.ts": {"$gt": ClusterTime(0, 0).to_bson()}},
        ),
        {"ns": {"$regex": r"\.system\.views$"}},
    ]
}
"""Commands and definitions of views. Transactions only if they contain a command, or end a chain that may contain one."""
_KINDS = {"ts": 1, "op": 1, "prevOpTime": 1, "o.partialTxn": 1, "o.prepare": 1, "o.applyOps.op": 1, "o.applyOps.ns": 1}


class OplogDdlWatch:
    """For one thread. `close` does nothing: a cursor lives no longer than a poll."""

    def __init__(self, client: Client, start: Position, telling: Telling = WITH_ROWS) -> None:
        self._client = client
        self._resolved = start
        self._telling = telling
        self._majority = MajorityWatch(client)
        self._wait = 0.0
        self._stride = Stride()

    def close(self) -> None: ...

    def poll(self) -> DdlBatch:
        time.sleep(self._wait)
        self._wait = min(2 * self._wait, _LONGEST_WAIT) or _SHORTEST_WAIT
        with translated("reading the DDL of the source"):
            committed_ts = majority_time_of(read_command(self._client, "admin", {HELLO: 1}))
            end = Position(committed_ts.next())
            events = self._read_stride(end) if end > self._resolved else ()
            trouble = self._majority.look_at(committed_ts)
        return DdlBatch(events=events, resolved=self._resolved, end=end, trouble=trouble)

    def _read_stride(self, end: Position) -> tuple[DdlEvent, ...]:
        """Reads one stride. If it ends before `end`, the next poll does not wait. One that takes the server too long is no error, unless it could not
        be shorter: whoever sees an error opens another watch, which would begin with the same long stride.
        """
        reached = Position(self._stride.end_of(self._resolved.ts, end.ts))
        began = time.monotonic()
        try:
            events = self._read(reached)
        except ExecutionTimeout:
            shorter = self._stride.given_up()
            if shorter == self._stride:
                raise
            self._stride, self._wait = shorter, 0.0
            return ()
        self._stride = self._stride.after(time.monotonic() - began)
        self._wait, self._resolved = _SHORTEST_WAIT if reached == end else 0.0, reached
        return events

    def _read(self, end: Position) -> tuple[DdlEvent, ...]:
        try:
            found: list[DdlEvent] = []
            with closing(entries(self._client, self._resolved.ts, end.ts, WANTED)) as replies:
                for raw in chain.from_iterable(replies):
                    found += ddls_of_entry(_decoded(raw), self._earlier(raw), self._telling)
        except HistoryLost as error:
            raise HistoryLost(
                f"position {self._resolved} is no longer in the source's oplog: {error}; {oldest_time_for_message(self._client)}; "
                "remove the changefeed and create it again with a new initial copy"
            ) from error
        return tuple(event for event in found if event.position >= self._resolved)

    def _earlier(self, raw: bytes) -> Iterator[Entry]:
        """The earlier entries of the transaction that this entry ends, in order, one in memory at a time.

        Of an entry without a command, no rows are read.
        """
        last = CommandEntry.of(raw) if is_command(raw) else None
        if last is None or not last.visible or last.previous_ts is None:
            return
        for part in parts(self._entry_of_ddl, last):
            if part is not last:
                yield _decoded(part.entry)

    def _entry_of_ddl(self, ts: ClusterTime, projection: Mapping[str, object] | None) -> bytes:
        if projection is not None:
            return entry_at(self._client, ts, projection)
        kinds = entry_at(self._client, ts, _KINDS)
        return entry_at(self._client, ts, None) if holds_command(kinds) else kinds


def _decoded(raw: bytes) -> Entry:
    return bson.decode(raw, ANY_TEXT)
