"""Heartbeats: a document of each changefeed in `__sluice.heartbeat`, replaced now and then while others write and the changefeed is behind.

A place in a sparse change stream is only known where an event matches: heartbeats match every stream of ours (`source.stream.filter_match`), and are no rows
of anybody's. So a stream that has an hour of other tables' writes to skip can be stopped, and goes on, at each of them. They are written while the
changefeed is paused, or behind for another reason: one that follows skips nothing later.
"""

from __future__ import annotations

from datetime import UTC, datetime

from pymongo.collection import Collection
from pymongo.write_concern import WriteConcern

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import HEARTBEAT_COLLECTION, HEARTBEAT_DATABASE
from source.connection import Client, session_time
from source.errors import translated

_NEAR_SECONDS = 10


def beat(client: Client, name: str, *, checkpoint: Position, last_ts: ClusterTime | None) -> ClusterTime | None:
    """The time of the last one. Another is written where somebody else wrote since, and the checkpoint is not near.

    A replacement: an event of a kind that few others are, so that streams which want no updates need not be shown those of others.
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
    """Nobody waits for the majority: the stream that a heartbeat is for shows when the majority has it."""
    return client[HEARTBEAT_DATABASE].get_collection(HEARTBEAT_COLLECTION, write_concern=WriteConcern(1))
