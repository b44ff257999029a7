"""`OplogReader`: the raw row entries of one window, in order, each exactly once, until the window is proven complete.

A window is one range of the oplog, read by one cursor. If the cursor breaks off, another one continues after the last entry seen. The
range is complete when the cursor is exhausted: `find.entries` waits until the member has all of it, and verifies that nothing of it was
removed.

A worked example, the window [100.2, 100.5/00000001):

    100.1  applyOps, partialTxn                    below the window; read when the transaction ends
    100.2  insert                                  yielded
    100.3  update, no-op                           both are yielded; the caller skips entries that are no rows
    100.5  applyOps of two, prevOpTime 100.1       its operations and those of 100.1: the first is yielded, the others are after the window

If most entries belong to unwanted tables, the server is asked only for the wanted names, at half the cost of sending all entries. The
caller reports with `took` how many entries were wanted.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial

import structlog
from bson.errors import BSONError
from pymongo.errors import ExecutionTimeout, PyMongoError

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost, SluiceError, SourceUnavailable
from changefeed.position import Position, Window
from source.connection import Client
from source.errors import error_text, translate
from source.oplog.command_entry import CommandEntry, is_command
from source.oplog.find import entries, entry_at, operations
from source.oplog.row_entry import about_command, index_of, made_entry, position, scan
from source.raw_row import RawBatch
from source.read_size import Stride

_REMEDY = "remove the changefeed and create it again with --start initial"
_TIME_NOT_REACHED = 72
"""InvalidOptions: `afterClusterTime` is beyond the member's own clock."""
MOST_NAMES = 1_000
"""More would cost the server more than the entries that it need not send."""
_LOOKED_AT = 5_000
_FEW = 0.25
_BATCH_BYTES = 16 << 20

log = structlog.get_logger(__name__)


class OplogReader:
    """`names` are all names that wanted tables may have, or None if these are more than `MOST_NAMES`. `about`: the operations of transactions say
    whose they are, and when they were written.
    """

    def __init__(
        self, client: Client, names: Sequence[str] | None, *, patience: timedelta, about: bool = False
    ) -> None:
        self._client = client
        self._about = about
        self._patience = patience
        self._names = names
        self._read = self._taken = 0
        self._by_name = False
        self._stride = Stride()

    def took(self, taken: int, read: int) -> None:
        """`taken` of the `read` entries that were yielded were wanted."""
        self._read, self._taken = self._read + read, self._taken + taken
        if self._read >= _LOOKED_AT:
            few = self._names is not None and self._taken < _FEW * self._read
            self._by_name, self._read, self._taken = self._by_name or few, 0, 0

    def read(self, window: Window) -> Generator[RawBatch, None, None]:
        """After an error it continues where it broke off, as long as the source returns within `patience`."""
        progress = _Progress(window)
        failing_since: float | None = None
        while not progress.complete:
            before = progress.reached
            try:
                yield from self._range(progress)
            except HistoryLost as error:
                raise HistoryLost(f"{error}; {_REMEDY}") from error
            except (SourceUnavailable, PyMongoError, BSONError) as error:
                if progress.reached != before or failing_since is None:
                    failing_since = time.monotonic()
                failure = self._failure(error, window)
                if not isinstance(failure, SourceUnavailable) or self._impatient(failing_since):
                    raise failure from error
                log.info("oplog_read_again", reached=str(progress.reached), reason=str(failure))
                time.sleep(failure.retry_after.total_seconds())

    def _range(self, progress: _Progress) -> Iterator[RawBatch]:
        """To the window's end, or for one stride if the server selects the wanted names."""
        end_ts = progress.end_ts
        if self._by_name:
            end_ts = self._stride.end_of(progress.start_ts, end_ts)
            yield from self._read_by_name(progress, end_ts)
        elif not (yield from self._read_all(progress)):
            return
        progress.complete = end_ts == progress.end_ts
        yield RawBatch([], progress.reached)

    def _read_all(self, progress: _Progress) -> Generator[RawBatch, None, bool]:
        """Whether the end was reached. It stops early if most entries turn out to be unwanted."""
        with closing(entries(self._client, progress.start_ts, progress.end_ts, {})) as replies:
            for documents in replies:
                for events in self._events(documents):
                    yield progress.take(events)
                if self._by_name:
                    return False
        return True

    def _read_by_name(self, progress: _Progress, end_ts: ClusterTime) -> Iterator[RawBatch]:
        wanted = {"$or": [{"op": "c"}, {"ns": {"$in": list(self._names or ())}}]}
        began = time.monotonic()
        try:
            with closing(entries(self._client, progress.start_ts, end_ts, wanted)) as replies:
                for documents in replies:
                    for events in self._events(documents):
                        yield progress.take(events)
        except ExecutionTimeout:
            self._stride = self._stride.given_up()
            raise
        self._stride = self._stride.after(time.monotonic() - began)
        progress.passed(end_ts)

    def _events(self, documents: list[bytes]) -> Iterator[list[bytes]]:
        """The entries as they are. In place of a command entry come the operations that it makes visible."""
        begin = 0
        for at, entry in enumerate(documents):
            if not is_command(entry):
                continue
            command = CommandEntry.of(entry)
            yield documents[begin:at]
            begin = at + 1
            if command.visible:
                yield from self._made(command)
        yield documents[begin:] if begin else documents

    def _made(self, command: CommandEntry) -> Iterator[list[bytes]]:
        ts, made, size = command.ts.to_int().to_bytes(8, "little"), [], 0
        about = about_command(command.entry) if self._about else b""
        for index, (operation, upserts) in enumerate(operations(partial(entry_at, self._client), command)):
            entry = made_entry(operation, ts, index, upserts=upserts, about=about)
            made.append(entry)
            size += len(entry)
            if size >= _BATCH_BYTES:
                yield made
                made, size = [], 0
        yield made

    def _failure(self, error: SourceUnavailable | PyMongoError | BSONError, window: Window) -> SluiceError:
        if isinstance(error, SourceUnavailable):
            return error
        doing, code = f"reading {window} from the source's oplog", getattr(error, "code", None)
        if code == _TIME_NOT_REACHED:
            return SourceUnavailable(
                f"{doing}: the member has not reached the end of this range yet: {error_text(error)}"
            )
        return translate(error, doing)

    def _impatient(self, failing_since: float) -> bool:
        return time.monotonic() - failing_since > self._patience.total_seconds()


class _Progress:
    """How much of a window was yielded. Entries are in order, so only the ends of a batch need to be checked."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.complete = window.empty
        self._next = window.start
        """Everything in the window below it was yielded."""

    @property
    def start_ts(self) -> ClusterTime:
        return self._next.ts

    @property
    def end_ts(self) -> ClusterTime:
        """Exclusive. The entry in which the window ends is read too."""
        end = self.window.end
        return end.ts.next() if end.token else end.ts

    @property
    def reached(self) -> Position:
        return self.window.end if self.complete else min(self._next, self.window.end)

    def take(self, events: list[bytes]) -> RawBatch:
        """`events` are a stretch of the range, in order."""
        if events:
            first, last = scan(events[0]).position, scan(events[-1]).position
            begin, end = 0, len(events)
            while begin < end and first < self._next:
                begin += 1
                first = scan(events[begin]).position if begin < end else first
            while end > begin and last >= self.window.end:
                end -= 1
                last = scan(events[end - 1]).position if end > begin else last
            if (begin, end) != (0, len(events)):
                events = events[begin:end]
            if events:
                self._next = position(last.ts, index_of(last) + 1)
        return RawBatch(events, self.reached)

    def passed(self, end_ts: ClusterTime) -> None:
        """Everything below `end_ts` was read."""
        self._next = max(self._next, Position(end_ts))
