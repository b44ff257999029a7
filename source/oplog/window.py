"""`OplogWindow`: the oldest and the newest time of the source's oplog. Also the source's majority-committed time.

Whether the user may read it at all is tested by a read (`oplog_obstacle`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from changefeed.cluster_time import ClusterTime
from changefeed.config.capture_choice import MAJORITY_READS_DISABLED, ROUTER, Obstacle, not_allowed
from changefeed.errors import SluiceError, SourceUnavailable
from changefeed.position import Position
from source.connection import HELLO, Client, is_router, read_command, session_time
from source.errors import is_refusal, translated

_FIRST_ENTRY = "initiating set"


@dataclass(frozen=True, slots=True, kw_only=True)
class OplogWindow:
    oldest_ts: ClusterTime
    newest_ts: ClusterTime
    of: str = ""
    """Whose oplog is the shortest, if there are several."""
    whole: bool = False
    """Nothing was ever removed."""
    parts: Mapping[str, ClusterTime | None] = field(default_factory=dict)
    """Of a cluster: the oldest time of each shard, and of the config servers. None: it did not answer."""

    @property
    def newest(self) -> Position:
        return Position(self.newest_ts)

    def holds(self, position: Position) -> bool:
        return position.ts >= self.oldest_ts

    def remaining(self, position: Position) -> timedelta:
        """How long the position stays readable if the oplog advances at its present pace. Negative once it is lost."""
        return timedelta(seconds=position.ts.seconds - self.oldest_ts.seconds)

    @property
    def span(self) -> timedelta:
        return timedelta(seconds=self.newest_ts.seconds - self.oldest_ts.seconds)


def read_oplog_window(client: Client) -> OplogWindow | None:
    """None through mongos, which shows no oplog: there a lost position is detected when a stream is opened at it."""
    with translated("reading the ends of the source's oplog"):
        if is_router(client):
            return None
        oplog = client["local"]["oplog.rs"]
        oldest, newest = (oplog.find_one({}, {"ts": 1, "o.msg": 1}, sort=[("$natural", way)]) for way in (1, -1))
    if oldest is None or newest is None:
        return None
    return OplogWindow(
        oldest_ts=ClusterTime.from_bson(oldest["ts"]),
        newest_ts=ClusterTime.from_bson(newest["ts"]),
        whole=oldest.get("o", {}).get("msg") == _FIRST_ENTRY,
    )


def oldest_time_for_message(client: Client) -> str:
    """For the message of a lost position. If the oldest time cannot be read, the text says so instead of raising."""
    try:
        window = read_oplog_window(client)
    except SluiceError as error:
        return f"the oldest time available is unknown: {error}"
    if window is None:
        return "the oldest time available is unknown through mongos"
    return f"the oldest time available is {window.oldest_ts} ({window.oldest_ts.to_iso()})"


def majority_time(client: Client) -> ClusterTime:
    """Writes at or before it are never rolled back, and every later read of this member sees them."""
    with translated("reading the majority-committed time of the source"), _session(client) as session:
        hello = read_command(client, "admin", {HELLO: 1}, session=session)
        return majority_time_of(hello) if "lastWrite" in hello else session_time(session)


def majority_time_of(hello: Mapping[str, Any]) -> ClusterTime:
    """Servers before 5.0 do not know it from their start on, but only when the majority has a write of their term."""
    written = hello.get("lastWrite", {})
    if "majorityOpTime" not in written:
        raise SourceUnavailable(
            f"{hello.get('me')} does not know yet what the majority of {hello.get('setName')} has: it has just started"
        )
    return ClusterTime.from_bson(written["majorityOpTime"]["ts"])


def newest_time(client: Client) -> ClusterTime:
    """At or after all writes that earlier reads saw, whether or not the majority has them."""
    with translated("reading the newest time of the source"), _session(client) as session:
        read_command(client, "admin", {"ping": 1}, session=session)
        return session_time(session)


def _session(client: Client) -> ClientSession:
    return client.start_session(causal_consistency=False)


_READ_CONCERN_MAJORITY_NOT_ENABLED = 148


def oplog_obstacle(client: Client) -> Obstacle | None:
    """None if the oplog can be read as the capture reads it. Raises other errors, for example that the source does not answer."""
    with translated("reading the oplog of the source"):
        if is_router(client):
            return ROUTER
        oplog = client.get_database("local", read_concern=ReadConcern("majority"))["oplog.rs"]
        try:
            oplog.find_one({}, {"ts": 1})
        except OperationFailure as error:
            if error.code == _READ_CONCERN_MAJORITY_NOT_ENABLED:
                return MAJORITY_READS_DISABLED
            if is_refusal(error):
                name = (error.details or {}).get("codeName", error.code)
                return not_allowed(f"the source answers {name}")
            raise
    return None
