"""`listed`, `made`: the sync points of a changefeed, as the target has them, and one that a user wants now."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing

from admin.cluster_reader import ClusterReader
from admin.services.changefeed_messages import sync_point
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.config.configuration import Configuration
from changefeed.errors import RetryableError, WrongState
from changefeed.records.requests import ChangefeedId
from changefeed.records.sync_point import SyncPoints
from credentials.secrets import expanded
from sink.mongodb.connection import connect
from sink.mongodb.sync_marks import readable_for, stored_points

_MOST = 100
_ANSWER_SECONDS, _LOOK_EVERY = 20.0, 0.05


def check_has_some(configuration: Configuration) -> None:
    if configuration.sync_points is None:
        raise WrongState(
            f"changefeed {configuration.id!r} makes no sync points; pause it, update it with sync_points: {{every: 60s, keep: 1h}}, and resume it"
        )


def listed(configuration: Configuration, most: int) -> Iterable[pb.SyncPoint]:
    check_has_some(configuration)
    with closing(connect(expanded(configuration.sink))) as client:
        history = readable_for(client)
        for point in stored_points(client, configuration.id, most or _MOST):
            yield sync_point(point, history)


def made(id: ChangefeedId, before: SyncPoints, reader: ClusterReader, rev: int) -> pb.SyncPoint:
    """Waits until the owner has answered the request, which was written at this revision."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    while True:
        known = reader.changefeed(id, rev)
        points = known.sync
        if not known.sync_asked and points.newest is not None and points.newest != before.newest:
            return sync_point(points.newest, None)
        if not known.sync_asked and points.missed > before.missed:
            raise RetryableError(f"changefeed {id!r}: the point was given up: {points.missed_because}; try again")
        if time.monotonic() >= deadline:
            raise RetryableError(
                f"changefeed {id!r}: no point was made within {_ANSWER_SECONDS:g} s: it is paused, behind, or its target does not answer; the request "
                f"stays, and `sluice changefeed sync-points {id}` shows when it has"
            )
        time.sleep(_LOOK_EVERY)
