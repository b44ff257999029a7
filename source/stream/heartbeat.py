"""`beat`: heartbeats, one document for each changefeed in `__sluice.heartbeat`, replaced regularly while the changefeed is behind.

In a sparse change stream only an event that matches gives a place. Heartbeats match every stream of Sluice (`source.stream.filter_match`),
and belong to no table of a user. So a stream that has to skip an hour of other tables' writes can stop and resume at each heartbeat. They
are written while the changefeed is paused, or behind for another reason: a changefeed that follows has nothing to skip later.
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
