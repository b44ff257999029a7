"""`NoteKeeper`: writes a note at a quiet source, so that everything before the note is resolved (`resolved.py` says why and when).

`appendOplogNote` writes an entry that no change stream shows. It needs the action of the same name on the cluster; a newer mongos
passes it to every shard, an older one refuses it. If it is refused, one document in `__sluice.heartbeat` is updated instead; that database
belongs to Sluice and is never replicated. Neither write waits for the majority, as servers since 5.0 do by default: the stream shows when
the majority has the note, and must not block while the majority is stalled.
"""

from __future__ import annotations

from typing import Any

import structlog
from pymongo.errors import OperationFailure
from pymongo.write_concern import WriteConcern

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import HEARTBEAT_COLLECTION, HEARTBEAT_DATABASE
from source.connection import Client, session_time
from source.errors import error_text, is_refusal, translated
from source.stream.resolved import Note, end_of_source, note_wanted

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
