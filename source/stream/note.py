"""`NoteKeeper`: writes a note at a quiet source, so that everything before the note is resolved (`completeness.py` says why and when).

`appendOplogNote` writes an entry that no change stream shows. It needs the action of the same name on the cluster; a newer mongos
passes it to every shard, an older one refuses it. If it is refused, one document in `__sluice.heartbeat` is updated instead; that database
belongs to Sluice and is never replicated. Neither write waits for the majority, as servers since 5.0 do by default: the stream shows when
the majority has the note, and must not block while the majority is stalled.

`beat`: heartbeats, one document for each changefeed in `__sluice.heartbeat`, replaced regularly while the changefeed is behind.

In a sparse change stream only an event that matches gives a place. Heartbeats match every stream of Sluice (`source.stream.filter_match`),
and belong to no table of a user. So a stream that has to skip an hour of other tables' writes can stop and resume at each heartbeat. They
are written while the changefeed is paused, or behind for another reason: a changefeed that follows has nothing to skip later.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import structlog
from pymongo.collection import Collection
from pymongo.errors import OperationFailure
from pymongo.write_concern import WriteConcern

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import HEARTBEAT_COLLECTION, HEARTBEAT_DATABASE
from source.connection import Client, session_time
from source.errors import error_text, is_refusal, translated
from source.stream.completeness import Note, end_of_source, note_wanted

_SILENCE = 2
"""So many replies without news before the newest entry: a no-op comes after a silence, and a busy source is not asked."""

log = structlog.get_logger(__name__)


class NoteKeeper:
    """Receives the times of each reply of a stream, and writes a note if one is wanted. For one thread."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._ways = [self._append_note, self._update_heartbeat]
        self._previous_committed_ts: ClusterTime | None = None
        self._last_note: Note | None = None
        self._looked_ts: ClusterTime | None = None
        """The newest time at which it was asked whether a stream shows anything, since no note can be written."""
        self._shows_nothing = False
        self._silence = 0
        """How many replies in a row had nothing newer than the one before."""

    def look_at(self, resolved: Position, committed_ts: ClusterTime, *, quiet: bool) -> None:
        wanted = quiet and note_wanted(
            resolved=resolved,
            committed_ts=committed_ts,
            previous_committed_ts=self._previous_committed_ts,
            last_note=self._last_note,
        )
        self._previous_committed_ts = committed_ts
        if wanted:
            self.write(committed_ts)

    def end(self, committed_ts: ClusterTime) -> Position:
        """Everything committed by then is below it, except a note of Sluice and, where none can be written, a no-op of the source."""
        silent = self._silence >= _SILENCE
        self._silence = self._silence + 1 if committed_ts == self._previous_committed_ts else 0
        if not self._ways and silent and committed_ts != self._looked_ts:
            self._looked_ts, self._shows_nothing = committed_ts, self._nothing_at(committed_ts)
        if self._shows_nothing and committed_ts == self._looked_ts:
            return Position(committed_ts)
        return end_of_source(committed_ts, self._last_note)

    def _nothing_at(self, ts: ClusterTime) -> bool:
        """Whether no change stream shows an entry at this time, the newest one. Through mongos the answer would prove nothing."""
        stages: list[dict[str, Any]] = [
            {"$changeStream": {"startAtOperationTime": ts.to_bson(), "allChangesForCluster": True}},
            {"$project": {"clusterTime": 1}},
        ]
        with translated("looking at the newest entry of the source"):
            if self._client.is_mongos:
                return False
            try:
                with self._client.admin.aggregate(stages, batchSize=1) as found:
                    first = found.try_next()
            except OperationFailure as error:
                log.info("newest_entry_unknown", error=error_text(error))
                return False
        return first is None or ClusterTime.from_bson(first["clusterTime"]) > ts

    def write(self, after_ts: ClusterTime) -> None:
        while self._ways:
            with translated("writing a note at the source"):
                try:
                    written_ts = self._ways[0]()
                except OperationFailure as error:
                    if not is_refusal(error):
                        raise
                    log.warning(
                        "source_note_refused",
                        way=self._ways[0].__name__,
                        left=len(self._ways) - 1,
                        error=error_text(error),
                    )
                    del self._ways[0]
                    continue
            second = self._last_note is not None and after_ts == self._last_note.written_ts
            self._last_note = Note(after_ts=after_ts, written_ts=written_ts, second=second)
            return

    def _append_note(self) -> ClusterTime:
        with self._client.start_session(causal_consistency=False) as session:
            note = {"appendOplogNote": 1, "data": {"sluice": "note"}, "writeConcern": {"w": 1}}
            self._client.admin.command(note, session=session)
            return session_time(session)

    def _update_heartbeat(self) -> ClusterTime:
        database = self._client[HEARTBEAT_DATABASE]
        heartbeat = database.get_collection(HEARTBEAT_COLLECTION, write_concern=WriteConcern(1))
        with self._client.start_session(causal_consistency=False) as session:
            heartbeat.update_one({"_id": "note"}, {"$inc": {"count": 1}}, upsert=True, session=session)
            return session_time(session)


_NEAR_SECONDS = 10


def beat(client: Client, name: str, *, checkpoint: Position, last_ts: ClusterTime | None) -> ClusterTime | None:
    """The time of the last heartbeat. Another one is written if the source has newer writes and the checkpoint is not near.

    A heartbeat is a replacement, a rare type of event: a stream that wants no updates need not receive the updates of other tables.
    """
    with translated("writing a heartbeat at the source"), client.start_session(causal_consistency=False) as session:
        client.admin.command("ping", session=session)
        now_ts = session_time(session)
        if now_ts == last_ts or now_ts.seconds - checkpoint.ts.seconds < _NEAR_SECONDS:
            return last_ts
        document = {"_id": name, "at": datetime.now(UTC)}
        _heartbeats(client).replace_one({"_id": name}, document, upsert=True, session=session)
        return session_time(session)


def end_heartbeats(client: Client, name: str) -> None:
    with translated("removing the heartbeat from the source"):
        _heartbeats(client).delete_one({"_id": name})


def _heartbeats(client: Client) -> Collection[dict[str, object]]:
    """Without waiting for the majority: the stream shows a heartbeat when the majority has it."""
    return client[HEARTBEAT_DATABASE].get_collection(HEARTBEAT_COLLECTION, write_concern=WriteConcern(1))
