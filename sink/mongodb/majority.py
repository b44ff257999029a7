"""`stalled`: the error for a write that the target's majority did not acknowledge in time, with the primary's view of its majority."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pymongo
from bson.errors import BSONError
from pymongo.errors import PyMongoError

from changefeed.cluster_time import ClusterTime, MajorityPoint
from changefeed.errors import SinkMajorityStalled
from sink.mongodb.connection import Client
from sink.mongodb.errors import answer_of

LATE = frozenset({50, 64})
"""MaxTimeMSExpired and WriteConcernFailed, as write concern errors: the primary has the write, its majority does not have it."""

_LONGEST_LOOK_SECONDS = 2.0


def majority_point(client: Client) -> MajorityPoint | None:
    """None for a router. Raises the driver's errors."""
    with pymongo.timeout(_LONGEST_LOOK_SECONDS):
        return MajorityPoint.of_hello(client.admin.command("hello"))


def stalled(client: Client, doing: str) -> SinkMajorityStalled:
    """The error for a write that the primary applied and the majority did not acknowledge."""
    try:
        point = majority_point(client)
    except (PyMongoError, BSONError) as error:
        return _stalled(doing, f"its primary did not report how far its majority is: {answer_of(error)}")
    return stalled_at(point, doing)


def stalled_at(point: MajorityPoint | None, doing: str) -> SinkMajorityStalled:
    if point is None:
        return _stalled(doing, "a shard's majority has not acknowledged it; look for members that are down")
    return _stalled(doing, str(point) if point.behind else "its majority was late, and has caught up since")


def write_time(reply: Mapping[str, Any]) -> tuple[ClusterTime, int] | None:
    """The time and term of the primary's write, from its reply; a router's reply has neither."""
    at = reply.get("opTime")
    return (ClusterTime.from_bson(at["ts"]), int(at["t"])) if isinstance(at, Mapping) else None


def _stalled(doing: str, why: str) -> SinkMajorityStalled:
    return SinkMajorityStalled(f"{doing}: not durable at the target yet: {why}")
