"""`sharded_rows`: the rows of a sharded cluster as one capture, whose raw events are entries of the shards' oplogs in one order.

    window [100, 110) of ShardedHistory {sa, sb}

    sa   100.2 insert    105.1 prepared, of 104.9     ─┐
                                                       ├─ 100.2 sa, 101.4 sb, 104.9 sa and sb, ...
    sb   101.4 update    104.9 prepared, of 104.9     ─┘

An event's key is its `_id` alone, as a table's shard key may change, unless whole keys are asked for: those of before the change. Its UUID is the
table's first one. Its place among the events of its time (`row_places.py`) is part of its bytes where another process is given them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from operator import itemgetter

import structlog
from bson.errors import BSONError
from pymongo.errors import PyMongoError

from changefeed.cluster_time import ClusterTime
from changefeed.errors import InvariantError, SluiceError, SourceUnavailable
from changefeed.position import Position, Window
from changefeed.sharded_history import ShardedHistory, opened
from changefeed.source_history import SourceHistory
from changefeed.table import TableId
from source.errors import translate
from source.oplog import row_entry
from source.raw_row import Header, RawBatch
from source.sharded.cluster_clients import ClusterClients
from source.sharded.rows.merge import Stretch, first_of, stretches
from source.sharded.rows.row_scan import row_scan
from source.sharded.rows.shard_row_reader import RowRange, ShardRowReader
from source.source import RowCapture, RowReader
from source.stream.window_reader import ReadOptions

log = structlog.get_logger(__name__)


def sharded_rows(clients: ClusterClients, ids: Mapping[TableId, TableId], options: ReadOptions) -> RowCapture:
    """`ids`: the tables of UUIDs that superseded a table's first one."""
    first = {bytes.fromhex(uuid): bytes.fromhex(table) for uuid, table in ids.items()}
    scan = partial(row_scan, first, whole_keys=options.whole_keys)

    def reader(history: SourceHistory | None) -> RowReader:
        of_shards = opened(history)
        if of_shards is None:
            raise InvariantError("a window of a sharded source: expected its barrier to name the shards, found none")
        return _WindowOfShards(clients, of_shards, scan, options)

    return RowCapture(
        reader=reader,
        scan=scan(),
        update_of=row_entry.update_of,
        about_of=row_entry.about_of,
        carried=row_entry.placed,
    )


@dataclass(slots=True)
class _Reached:
    """All rows before `ts` were yielded, and so many of those at it. Their order is the same each time that they are read."""

    ts: ClusterTime
    rows: int = 0

    def take(self, rows: Stretch) -> None:
        last = rows[-1][0]
        new = len(rows) - first_of(rows, last)
        self.rows = new + (self.rows if last == self.ts.to_int() else 0)
        self.ts = ClusterTime.from_int(last)


class _WindowOfShards:
    """For one thread."""

    def __init__(
        self,
        clients: ClusterClients,
        history: ShardedHistory,
        scan: Callable[[tuple[bytes, bytes]], Callable[[bytes], Header]],
        options: ReadOptions,
    ) -> None:
        self._clients = clients
        self._history = history
        self._scan = scan
        self._options = options

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
                yield RawBatch([], window.end)
                return

    def _read(self, reached: _Reached, window: Window) -> Iterator[RawBatch]:
        seen = reached.rows
        with ExitStack() as stack:
            shards = [stack.enter_context(closing(rows)) for rows in self._shards(reached.ts, window.end)]
            for stretch in stretches(shards):
                new = stretch[seen:] if seen else stretch
                seen -= len(stretch) - len(new)
                if new:
                    reached.take(new)
                    yield RawBatch(list(map(_ENTRY, new)), Position(reached.ts), headers=list(map(_HEADER, new)))

    def _shards(self, start_ts: ClusterTime, end: Position) -> Iterator[Generator[Stretch, None, None]]:
        end_ts = end.ts if not end.token or end.token < _FIRST_ROW else end.ts.next()
        ranges: dict[str, RowRange] = {}
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
                ranges[name] = range
        for name, range in ranges.items():
            client = self._clients.of(name, self._history.shards[name].host)
            reader = ShardRowReader(client, name, self._scan, shares_with=len(ranges), about=self._options.about)
            yield reader.read(range)

    def _impatient(self, failing_since: float) -> bool:
        return time.monotonic() - failing_since > self._options.patience.total_seconds()


_ENTRY, _HEADER = itemgetter(2), itemgetter(3)
_FIRST_ROW = "01"
"""The least token of a row. Those of DDLs are less."""


def _failure(error: SluiceError | PyMongoError | BSONError, window: Window) -> SluiceError:
    if isinstance(error, SluiceError):
        return error
    return translate(error, f"reading {window} from the oplogs of the source's shards")
