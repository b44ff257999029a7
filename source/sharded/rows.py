"""`ShardedRows`: the rows of a sharded cluster as one capture, whose raw events are entries of the shards' oplogs in one order.

    window [100, 110) of ShardedHistory {sa, sb}

    sa   100.2 insert    105.1 prepared, of 104.9     ─┐
                                                       ├─ 100.2 sa, 101.4 sb, 104.9 sa sb in turn, ...
    sb   101.4 update    104.9 prepared, of 104.9     ─┘

An event's key is its `_id` alone, as a table's shard key may change, unless whole keys are asked for: those of before the change. Its UUID is the
table's first one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile

import structlog
from bson.errors import BSONError
from pymongo.errors import PyMongoError

from changefeed.cluster_time import ClusterTime
from changefeed.documents.row_key import row_key
from changefeed.errors import InvariantError, SluiceError, SourceUnavailable
from changefeed.position import Position, Window
from changefeed.sharded.history import ShardedHistory
from changefeed.table import TableId
from source.errors import translate
from source.oplog import row_entry
from source.raw.raw_batch import RawBatch
from source.raw.row_about import RowAbout
from source.raw.row_header import Header
from source.row_capture import RowReader
from source.sharded.cluster_clients import ClusterClients
from source.sharded.merge import stretches
from source.sharded.row_reader import RowRange, ShardRow, ShardRowReader
from source.sharded.row_scan import row_scan

_DELETE = b"\x02op\0\x02\0\0\0d\0"
log = structlog.get_logger(__name__)


class ShardedRows:
    """`ids`: the tables of UUIDs that superseded a table's first one."""

    def __init__(
        self, clients: ClusterClients, ids: Mapping[TableId, TableId], *, patience: timedelta, whole_keys: bool = False
    ) -> None:
        self._clients = clients
        self._patience = patience
        self._ids = {bytes.fromhex(uuid): bytes.fromhex(table) for uuid, table in ids.items()}
        self._scan = row_scan(self._ids, whole_keys=whole_keys)

    @property
    def scan(self) -> Callable[[bytes], Header]:
        return self._scan

    @property
    def update_of(self) -> Callable[[bytes, Header], bytes]:
        return row_entry.update_of

    @property
    def about_of(self) -> Callable[[bytes, Header], RowAbout]:
        return row_entry.about_of

    def reader(self, history: ShardedHistory | None) -> RowReader:
        if history is None:
            raise InvariantError("a window of a sharded source: expected its barrier to name the shards, found none")
        return _WindowOfShards(self._clients, history, self._document, patience=self._patience)

    def _document(self, row: ShardRow) -> Hashable:
        """What is no write of a user has no order among those of its document."""
        if not row.of_user:
            return row
        return self._ids.get(row.header.uuid, row.header.uuid), row_key(row.header.key)


@dataclass(slots=True)
class _Reached:
    """All rows before `ts` were yielded, and so many of those at it. Their order is the same each time that they are read."""

    ts: ClusterTime
    rows: int = 0

    def take(self, stretch: list[ShardRow]) -> None:
        last = stretch[-1].time
        new = sum(1 for _ in takewhile(lambda row: row.time == last, reversed(stretch)))
        self.rows = new + (self.rows if last == self.ts.to_int() else 0)
        self.ts = ClusterTime.from_int(last)


class _WindowOfShards:
    """For one thread."""

    def __init__(
        self,
        clients: ClusterClients,
        history: ShardedHistory,
        document: Callable[[ShardRow], Hashable],
        *,
        patience: timedelta,
    ) -> None:
        self._clients = clients
        self._history = history
        self._document = document
        self._patience = patience

    def took(self, taken: int, read: int) -> None:
        """Everything is read in any case."""

    def read(self, window: Window) -> Generator[RawBatch, None, None]:
        """After an error it continues where it broke off, as long as the shards return within `patience`."""
        reached, failing_since = _Reached(window.start.ts), 0.0
        while True:
            before = reached.ts, reached.rows
            try:
                yield from self._read(reached, window)
            except (SourceUnavailable, PyMongoError, BSONError) as error:
                if (reached.ts, reached.rows) != before or not failing_since:
                    failing_since = time.monotonic()
                failure = _failure(error, window)
                if not isinstance(failure, SourceUnavailable) or self._impatient(failing_since):
                    raise failure from error
                log.info("shards_read_again", reached=str(reached.ts), reason=str(failure))
                time.sleep(failure.retry_after.total_seconds())
            else:
                yield RawBatch([], 0, window.end)
                return

    def _read(self, reached: _Reached, window: Window) -> Iterator[RawBatch]:
        seen = reached.rows
        with ExitStack() as stack:
            shards = [stack.enter_context(closing(rows)) for rows in self._shards(reached.ts, window.end)]
            for stretch in stretches(shards, self._document, _inserts, _deletes):
                rows = stretch[seen:]
                seen -= len(stretch) - len(rows)
                if rows:
                    reached.take(rows)
                    events = [row.entry for row in rows]
                    yield RawBatch(events, sum(map(len, events)), Position(reached.ts))

    def _shards(self, start_ts: ClusterTime, end: Position) -> Iterator[Generator[list[ShardRow], None, None]]:
        end_ts = end.ts if not end.token or end.token < _FIRST_ROW else end.ts.next()
        for name, shard in sorted(self._history.shards.items()):
            if shard.gone:
                continue
            range = RowRange(
                start_ts=max(start_ts, shard.since_ts or start_ts),
                end_ts=min(end_ts, shard.until_ts or end_ts),
                until_ts=self._history.until(name, end_ts),
                commits=shard.quiet_ts is None or start_ts < shard.quiet_ts,
            )
            if range.start_ts < range.end_ts:
                yield ShardRowReader(self._clients.of(name, shard.host), name).batches(range)

    def _impatient(self, failing_since: float) -> bool:
        return time.monotonic() - failing_since > self._patience.total_seconds()


_FIRST_ROW = "0"
"""The least token of a row. Those of DDLs are less."""


def _inserts(row: ShardRow) -> bool:
    return row.header.type == b"insert" and row.of_user


def _deletes(row: ShardRow) -> bool:
    """The bytes are looked for first: a document may contain them, too, and a header costs twenty times as much."""
    return _DELETE in row.entry and row.header.type == b"delete" and row.of_user


def _failure(error: SluiceError | PyMongoError | BSONError, window: Window) -> SluiceError:
    if isinstance(error, SluiceError):
        return error
    return translate(error, f"reading {window} from the oplogs of the source's shards")
