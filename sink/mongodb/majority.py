"""What the target's primary says of its majority, when a write was not acknowledged by it in time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pymongo
from bson.errors import BSONError
from pymongo.errors import PyMongoError

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SinkMajorityStalled
from changefeed.majority import MajorityPoint
from sink.mongodb.connection import Client
from sink.mongodb.errors import answer_of

LATE = frozenset({50, 64})
"""MaxTimeMSExpired and WriteConcernFailed, as write concern errors: the primary has the write, its majority has not."""

_LONGEST_LOOK_SECONDS = 2.0


def majority_point(client: Client) -> MajorityPoint | None:
    """None through a router. Raises the driver's errors."""
    with pymongo.timeout(_LONGEST_LOOK_SECONDS):
        return MajorityPoint.of_hello(client.admin.command("hello"))


def stalled(client: Client, doing: str) -> SinkMajorityStalled:
    """The error of a write that was done and not acknowledged."""
    try:
        point = majority_point(client)
    except (PyMongoError, BSONError) as error:
        return _stalled(doing, f"how far its majority is, its primary did not say: {answer_of(error)}")
    return stalled_at(point, doing)


def stalled_at(point: MajorityPoint | None, doing: str) -> SinkMajorityStalled:
    if point is None:
        return _stalled(doing, "a shard's majority has not acknowledged it; look for members that are away")
    return _stalled(doing, str(point) if point.behind else "its majority was late, and has caught up by now")


def write_time(reply: Mapping[str, Any]) -> tuple[ClusterTime, int] | None:
    """When and in which term the primary did what it replies to; a router does not say."""
    at = reply.get("opTime")
    return (ClusterTime.from_bson(at["ts"]), int(at["t"])) if isinstance(at, Mapping) else None


def _stalled(doing: str, why: str) -> SinkMajorityStalled:
    return SinkMajorityStalled(f"{doing}: not durable at the target yet: {why}")
