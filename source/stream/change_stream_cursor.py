"""`ChangeStreamCursor`: DDL from one cluster-wide change stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import bson
import structlog
from pymongo.errors import PyMongoError

from changefeed.cluster_time import ClusterTime
from changefeed.event import SHOWN_BY_STREAMS, DdlEvent
from source.connection import Client
from source.ddl.ddl_description import ANY_TEXT
from source.errors import error_text
from source.oplog.window import majority_time
from source.stream import filter_match
from source.stream.change_event import ddl_of_change
from source.stream.duplicates import DuplicateFolder
from source.stream.events.batch_size import BatchSize
from source.stream.events.raw_event import scan
from source.stream.events.raw_stream import RawStream
from source.stream.resuming_ddl_watch import Reading

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

    def open(self, start_ts: ClusterTime) -> None:
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
        if reply is None:
            return Reading(quiet=False, committed_ts=majority_time(self._client))
        return Reading(
            events=tuple(self._ddls(reply.events)),
            token=reply.resume_token,
            quiet=not reply.events,
            committed_ts=reply.operation_ts,
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
