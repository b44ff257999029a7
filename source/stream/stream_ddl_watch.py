"""`ResumingDdlWatch`: a `DdlWatch` by change streams.

After any error its cursor is opened again at the cluster time of `resolved`, and events that were delivered before are dropped. The
order of positions is the order of the stream, so "at or below the last delivered one" is exact.

The cursor reads one cluster-wide change stream (`ChangeStreamCursor`), which shows some DDL once per shard. `DuplicateFolder` makes one event of these.
Before 7.0 each shard reports a drop, before 8.1 a dropDatabase, and index changes and collMods of all versions can come once per shard. An
event is a duplicate if it repeats the last event of the same subject: a table, one set of its indexes, or a database. So `create i,
drop i, create i` stays three DDLs, and `create i, create j, create i, create j` is two.

A restart forgets the earlier events, and an index build may end on two shards hours apart. An undetected duplicate is harmless, since a
DDL may be applied twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import bson
import structlog
from pymongo.errors import PyMongoError

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost, SluiceError
from changefeed.event import SHOWN_BY_STREAMS, DdlEvent, DdlType
from changefeed.position import Position
from source.connection import Client
from source.ddl_description import ANY_TEXT
from source.ddl_watch import DdlBatch
from source.errors import error_text, translated
from source.majority_watch import MajorityWatch
from source.oplog.window import majority_time
from source.read_size import BatchSize
from source.stream import filter_match
from source.stream.change_event import ddl_of_change, scan
from source.stream.completeness import resolved_after
from source.stream.note import NoteKeeper
from source.stream.raw_stream import RawStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The result of one read at the source."""

    events: tuple[DdlEvent, ...] = ()
    token: str | None = None
    """Its post-batch resume token."""
    quiet: bool
    """The reply had no event at all, not even one that is no DDL."""
    committed_ts: ClusterTime
    """Everything that a majority had when the read began is at or before it."""


class ResumingDdlWatch:
    """`oldest` returns the oldest time available at the source, for messages."""

    def __init__(
        self,
        cursor: ChangeStreamCursor,
        start: Position,
        notes: NoteKeeper,
        majority: MajorityWatch,
        oldest: Callable[[], str],
    ) -> None:
        self._cursor = cursor
        self._start = start
        self._notes = notes
        self._majority = majority
        self._oldest = oldest
        self._resolved = start
        self._delivered: Position | None = None
        self._open = False

    def poll(self) -> DdlBatch:
        try:
            with translated("reading the DDL of the source"):
                return self._poll()
        except HistoryLost as error:
            self.close()
            raise HistoryLost(
                f"position {self._resolved} is no longer in the source's oplog: {self._oldest()}; "
                "remove the changefeed and create it again with a new initial copy"
            ) from error
        except SluiceError:
            self.close()
            raise

    def close(self) -> None:
        """May be called twice. A later poll opens the cursor again."""
        self._open = False
        with translated("closing the DDL stream of the source"):
            self._cursor.close()

    def _poll(self) -> DdlBatch:
        if not self._open:
            self._cursor.open(self._resolved.ts)
            self._open = True
        reading = self._cursor.read()
        events = tuple(event for event in reading.events if self._is_new(event.position))
        if events:
            self._delivered = events[-1].position
        self._resolved = resolved_after(self._resolved, token=reading.token, last_event=self._delivered)
        end = self._notes.end(reading.committed_ts)
        self._notes.look_at(self._resolved, reading.committed_ts, quiet=reading.quiet)
        trouble = self._majority.look_at(reading.committed_ts)
        return DdlBatch(events=events, resolved=self._resolved, end=end, trouble=trouble)

    def _is_new(self, position: Position) -> bool:
        return position >= self._start and (self._delivered is None or position > self._delivered)


AWAIT_MS = 50
"""How long the server waits for an event before it answers with only a newer resume token."""

_TYPES = frozenset(type_.value.encode() for type_ in SHOWN_BY_STREAMS)

log = structlog.get_logger(__name__)


class ChangeStreamCursor:
    """After an error it is opened again. Heartbeats between DDLs give it later places for that."""

    def __init__(self, client: Client, *, sharded: bool) -> None:
        self._client = client
        self._folder = DuplicateFolder() if sharded else None
        self._batch_size = BatchSize()
        self._stream: RawStream | None = None
        self._late = False
        """Whether the next reply is to a command of an earlier read. It may have come before the next read began."""

    def open(self, start_ts: ClusterTime) -> None:
        """At the first event of this cluster time."""
        self._late = False
        self._stream = RawStream(
            self._client,
            start_ts=start_ts,
            options={"showExpandedEvents": True},
            stages=[{"$match": filter_match.DDL}],
            batch_size=self._batch_size,
        )

    def read(self) -> Reading:
        assert self._stream is not None
        reply = self._stream.next(await_ms=AWAIT_MS)
        late, self._late = self._late, reply is None
        committed_ts = majority_time(self._client) if reply is None or late else reply.operation_ts
        if reply is None:
            return Reading(quiet=False, committed_ts=committed_ts)
        return Reading(
            events=tuple(self._ddls(reply.events)),
            token=reply.resume_token,
            quiet=not reply.events,
            committed_ts=committed_ts,
        )

    def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is None:
            return
        try:
            stream.close()
        except PyMongoError as error:
            log.info("ddl_stream_close_failed", error=error_text(error))

    def _ddls(self, events: Iterable[bytes]) -> Iterator[DdlEvent]:
        for raw in events:
            if scan(raw).type not in _TYPES:
                continue
            change = bson.decode(raw, ANY_TEXT)
            event = ddl_of_change(change)
            if event is None:
                continue
            if self._folder is not None and self._folder.is_duplicate(event):
                log.info("ddl_of_another_shard", ddl=str(event))
                continue
            yield event


_REMEMBERED = 10_000
_INDEX_TYPES = frozenset({DdlType.CREATE_INDEXES, DdlType.DROP_INDEXES})
_BRINGS_TABLES = frozenset({DdlType.CREATE, DdlType.RENAME})

Subject = tuple[str, ...]


class DuplicateFolder:
    """Only for sharded sources: a replica set reports each DDL once."""

    def __init__(self) -> None:
        self._latest: OrderedDict[Subject, DdlEvent] = OrderedDict()

    def is_duplicate(self, event: DdlEvent) -> bool:
        if event.type in _BRINGS_TABLES:
            self._latest.pop(("", (event.renamed_to or event).db), None)
        subject = _subject(event)
        before = self._latest.get(subject)
        self._latest[subject] = event
        self._latest.move_to_end(subject)
        if len(self._latest) > _REMEMBERED:
            self._latest.popitem(last=False)
        return before is not None and _content(before) == _content(event)


def _subject(event: DdlEvent) -> Subject:
    if event.id is None:
        return ("", event.db)
    if event.type in _INDEX_TYPES:
        return (event.id, *(str(spec.get("name")) for spec in event.description.decode()["indexes"]))
    return (event.id,)


def _content(event: DdlEvent) -> tuple[object, ...]:
    return event.type, event.table, event.renamed_to, event.description.raw
