"""`WindowReader`: the raw events of one window of the change stream, in order, each exactly once, until the window is proven complete.

A worked example, the window [100.1/..2D, 100.3/..30), whose end is the position of a drop:

    the stream is opened at 100.1       100.1/..2C  below the start: dropped
    (startAtOperationTime takes         100.1/..2D  yielded
    no token)                           100.2/..2E  yielded
                                        token 100.2/..2E, nothing follows: not proven, the drop may come next. A note is written
                                        token high water mark 100.4: everything before 100.4 was shown: the window is complete

An empty batch proves nothing. The proof is an event at or past the end (if the match passes the DDL types, the DDL at which a window
ends is its own proof), or a resume token that moves `resolved` to the end or past it.

Each reply of the source gives one batch, which may be empty. So does each second without a reply: the caller can do other work in
between, or give up. When the iterator is closed, the operation at the source is killed.
A batch contains at most one reply, 16 MB and one event. Nothing else is kept, except the fragments of one split event.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure, PyMongoError

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import EMPTY, Document
from changefeed.errors import HistoryLost, SluiceError, SourceUnavailable, SourceUnsupported
from changefeed.position import Position, Window
from source.connection import Client
from source.errors import translate, translated
from source.oplog.window import oldest_time_for_message
from source.raw_row import RawBatch
from source.read_size import BatchSize
from source.stream.change_event import StreamReply, scan
from source.stream.completeness import WindowProgress
from source.stream.large_event import LargeEvents, Stage, after_token, connection_lost, too_large
from source.stream.note import NoteKeeper
from source.stream.raw_stream import RawStream

_SHORTEST_WAIT_MS = 10
_LONGEST_WAIT_MS = 250
_MANY = 1 << 14

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    match: Document = EMPTY
    """The filter for the server's `$match`; empty passes everything."""
    after: bool = False
    before: bool = False
    """Whether the documents after and before each change are wanted, where the source keeps them (6.0)."""
    about: bool = False
    """Whether `about_of` of a row is wanted."""
    patience: timedelta = timedelta(seconds=30)
    """How long the source may be unavailable at one place before the error is raised."""
    whole_keys: bool = False
    """Whether keys of rows have the fields of the source's shard key, if they are read at its shards. A router shows them anyway."""


class WindowReader:
    """A task makes one from `ReadOptions` and the source's URI."""

    def __init__(self, client: Client, options: ReadOptions) -> None:
        self._client = client
        self._options = options
        self._notes = NoteKeeper(client)
        self._batch_size = BatchSize()
        self._version: ServerVersion | None = None

    def read(self, window: Window) -> Generator[RawBatch, None, None]:
        """Opens the stream again where it broke off, as long as the source returns within `patience`."""
        progress, care = WindowProgress(window), Care()
        failing_since: float | None = None
        while not progress.complete:
            before = progress.reached
            try:
                if care.next_is_large:
                    yield self._large(progress, care)
                else:
                    yield from self._read_stream(progress, care)
            except (SourceUnavailable, PyMongoError, BSONError) as error:
                if too_large(error) or care.lost_again(error, progress.seen):
                    care.failed(progress.seen)
                    continue
                if progress.reached != before or failing_since is None:
                    failing_since = time.monotonic()
                failure = self._failure(error, progress)
                if not isinstance(failure, SourceUnavailable) or self._impatient(failing_since):
                    raise failure from error
                log.info("change_stream_reopened", reached=str(progress.reached), reason=str(failure))
                time.sleep(failure.retry_after.total_seconds())

    def took(self, taken: int, read: int) -> None:
        """Ignored: the server's match does not depend on it."""

    def try_at(self, start_ts: ClusterTime) -> None:
        """Opens the stream of `read` for at most a second, to find out whether the server refuses it."""
        with translated("opening the source's change stream of rows"):
            try:
                with self._stream(start_ts, Care()) as stream:
                    stream.next(await_ms=_SHORTEST_WAIT_MS)
            except OperationFailure as error:
                if not too_large(error):
                    raise

    def _failure(self, error: SourceUnavailable | PyMongoError | BSONError, progress: WindowProgress) -> SluiceError:
        if isinstance(error, SourceUnavailable):
            return error
        failure = translate(error, f"reading {progress.window} from the source's change stream at {progress.start_ts}")
        if isinstance(failure, HistoryLost):
            oldest = oldest_time_for_message(self._client)
            return HistoryLost(f"{failure}; {oldest}; remove the changefeed and create it again with --start initial")
        return failure

    def _impatient(self, failing_since: float) -> bool:
        return time.monotonic() - failing_since > self._options.patience.total_seconds()

    def _read_stream(self, progress: WindowProgress, care: Care) -> Iterator[RawBatch]:
        progress.reopened()
        await_ms = _SHORTEST_WAIT_MS
        with self._stream(progress.start_ts, care) as stream:
            while not progress.complete:
                reply = stream.next(await_ms=await_ms, most=care.most)
                if reply is None:
                    yield progress.silence()
                    continue
                if reply.events:
                    care.succeeded()
                before = progress.resolved
                yield progress.take(reply)
                quiet = not reply.events and progress.resolved == before
                await_ms = min(2 * await_ms, _LONGEST_WAIT_MS) if quiet else _SHORTEST_WAIT_MS
                if not progress.complete:
                    self._notes.look_at(progress.resolved, reply.operation_ts, quiet=quiet)

    def _large(self, progress: WindowProgress, care: Care) -> RawBatch:
        """The event after the last one seen, at which the stream broke off."""
        progress.reopened()
        version, seen = self._known_version(), progress.seen
        options = version.stream_options(self._options)
        events = LargeEvents(
            self._client, options, self._wanted(), version.last_stages(), measured=version.version >= (5, 0)
        )
        found = events.first(progress.start_ts, seen.token if seen else None)
        position = scan(found.event).position
        care.passed(position)
        log.info("large_event_read_in_parts", ts=str(position.ts), bytes=len(found.event), unreadable=found.unreadable)
        return replace(progress.take(StreamReply([found.event], None, position.ts, 0)), unreadable=found.unreadable)

    def _stream(self, start_ts: ClusterTime, care: Care) -> RawStream:
        version = self._known_version()
        return RawStream(
            self._client,
            start_ts=start_ts,
            options=version.stream_options(self._options),
            stages=[*self._wanted(), *care.stages(start_ts), *version.last_stages()],
            batch_size=self._batch_size,
        )

    def _wanted(self) -> list[dict[str, object]]:
        match = self._options.match
        return [{"$match": RawBSONDocument(match.raw)}] if match != EMPTY else []

    def _known_version(self) -> ServerVersion:
        if self._version is None:
            self._version = ServerVersion.of(self._client)
        return self._version


@dataclass(slots=True)
class Care:
    """How to read a stream that broke off because an event is larger than a reply can hold.

    The failed reply may have contained other events before it. So events are requested one at a time, then two, then four. If a single event
    breaks the stream off, it is read in parts, and the stream continues after it.

    A server from 5.0 on may notice the size only when it assembles the reply. Then it closes the connection, as a failing server does too. So
    two lost connections at one place are taken for a large event.
    """

    most: int | None = None
    next_is_large: bool = False
    behind: Position | None = None
    _lost_at: tuple[Position | None] | None = None

    def lost_again(self, error: Exception, seen: Position | None) -> bool:
        if self.next_is_large or not connection_lost(error):
            return False
        again, self._lost_at = self._lost_at == (seen,), (seen,)
        return again

    def failed(self, seen: Position | None) -> None:
        self.next_is_large = self.most == 1
        self.most, self.behind = 1, seen

    def succeeded(self) -> None:
        if self.most is not None:
            self.most = 2 * self.most if self.most < _MANY else None

    def passed(self, position: Position) -> None:
        self.next_is_large, self.behind = False, position

    def stages(self, start_ts: ClusterTime) -> list[Stage]:
        """A stream starts at a time, so it would show events again that were seen, including the large one."""
        return [after_token(self.behind.token)] if self.behind is not None and start_ts <= self.behind.ts else []


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerVersion:
    """The options and stages of a change stream that a source of this version supports."""

    version: tuple[int, ...]

    @classmethod
    def of(cls, client: Client) -> ServerVersion:
        return cls(version=tuple(client.server_info()["versionArray"][:3]))

    @property
    def splits_large_events(self) -> bool:
        """Servers have it since 7.0, and since 6.0.9 within 6.0, but not in the releases between."""
        return self.version >= (7, 0) or (6, 0, 9) <= self.version < (6, 1)

    def stream_options(self, options: ReadOptions) -> dict[str, object]:
        modern = self.version >= (6, 0)
        if (options.after or options.before) and not modern:
            raise SourceUnsupported(f"pre- and post-images need MongoDB 6.0, and the source is {self}")
        stream: dict[str, object] = {"fullDocument": "whenAvailable" if options.after else "default"}
        if modern:
            stream["showExpandedEvents"] = True
            stream["fullDocumentBeforeChange"] = "whenAvailable" if options.before else "off"
        return stream

    def last_stages(self) -> list[Stage]:
        return [{"$changeStreamSplitLargeEvent": {}}] if self.splits_large_events else []

    def __str__(self) -> str:
        return f"MongoDB {'.'.join(map(str, self.version))}"
