"""`ChangeStreamCursor`: DDL from one cluster-wide change stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from pymongo.change_stream import ChangeStream
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure, PyMongoError

from changefeed import filter_match
from changefeed.cluster_time import ClusterTime
from changefeed.event import DdlEvent
from source.change_event import ddl_of_change
from source.connection import Client, session_time
from source.ddl_watch import Reading
from source.duplicates import DuplicateFolder
from source.errors import CURSOR_NOT_FOUND, told

AWAIT_MS = 50
"""How long the server waits for something to show before it answers with a newer resume token."""

log = structlog.get_logger(__name__)


class ChangeStreamCursor:
    """The driver's stream does the retries that are safe for it, and stays with its mongos; all else is the watch's."""

    def __init__(self, client: Client, *, sharded: bool) -> None:
        self._client = client
        self._folder = DuplicateFolder() if sharded else None
        self._session: ClientSession | None = None
        self._stream: ChangeStream[dict[str, Any]] | None = None

    def open(self, start_ts: ClusterTime) -> None:
        self._session = self._client.start_session(causal_consistency=False)
        self._stream = self._client.watch(
            [{"$match": filter_match.DDL}],
            start_at_operation_time=start_ts.to_bson(),
            show_expanded_events=True,
            max_await_time_ms=AWAIT_MS,
            session=self._session,
        )

    def read(self) -> Reading:
        """At most one event: what the driver still holds of a batch comes with the next reads, without a round trip."""
        assert self._stream is not None
        assert self._session is not None
        if not self._stream.alive:
            raise OperationFailure("the server ended the change stream", CURSOR_NOT_FOUND)
        change = self._stream.try_next()
        token = self._stream.resume_token
        event = self._event_of(change) if change is not None else None
        return Reading(
            events=(event,) if event is not None else (),
            token=token["_data"] if token is not None else None,
            quiet=change is None,
            committed_ts=session_time(self._session),
        )

    def close(self) -> None:
        stream, session = self._stream, self._session
        self._stream = self._session = None
        try:
            if stream is not None:
                stream.close()
        except PyMongoError as error:
            log.info("ddl_stream_close_failed", error=told(error))
        finally:
            if session is not None:
                session.end_session()

    def _event_of(self, change: Mapping[str, Any]) -> DdlEvent | None:
        event = ddl_of_change(change)
        if event is not None and self._folder is not None and self._folder.is_duplicate(event):
            log.info("ddl_of_another_shard", ddl=str(event))
            return None
        return event
