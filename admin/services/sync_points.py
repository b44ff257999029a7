"""`listed`, `named`, `made`: the sync points of a changefeed, as the target and etcd have them, and one that a user wants now."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing

from admin.cluster_reader import ClusterReader
from admin.services.changefeed_messages import sync_point
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.config.configuration import Configuration
from changefeed.errors import NotFoundError, RetryableError, WrongState
from changefeed.records.requests import ChangefeedId
from changefeed.records.sync_point import SyncPoint, SyncPoints
from credentials.secrets import expanded
from owner.etcd_view import OwnerView
from sink.mongodb.connection import Client, connect
from sink.mongodb.sync_marks import readable_for, stored_points

_MOST, _MOST_NAMED = 100, 10_000
_ANSWER_SECONDS, _LOOK_EVERY = 20.0, 0.05


def check_has_some(configuration: Configuration) -> None:
    if configuration.sync_points is None:
        raise WrongState(
            f"changefeed {configuration.id!r} makes no sync points; pause it, update it with sync_points: {{every: 60s, keep: 1h}}, and resume it"
        )


def listed(known: OwnerView, most: int) -> Iterable[pb.SyncPoint]:
    with _target_of(known) as client:
        history = readable_for(client)
        for point in _known_points(known, client, most or _MOST):
            yield sync_point(point, history)


def named(known: OwnerView, text: str) -> SyncPoint:
    """`latest`, or the source's time of one."""
    with _target_of(known) as client:
        points = _known_points(known, client, 1 if text == "latest" else _MOST_NAMED)
    found = [point for point in points if text in ("latest", str(point.source), str(point.source.seconds))]
    if not found:
        id = known.info.configuration.id
        raise NotFoundError(
            f"changefeed {id!r} has no sync point {text}; `sluice changefeed sync-points {id}` lists them, `sync-now {id}` makes one"
        )
    return found[0]


def _known_points(known: OwnerView, client: Client, most: int) -> list[SyncPoint]:
    """The newest first. The owner tells etcd of a point, and so its user, before its record is in the target."""
    stored = stored_points(client, known.info.configuration.id, most)
    if known.sync.newest is None:
        return stored
    points = {point.source: point for point in (known.sync.newest, *stored)}
    return [points[ts] for ts in sorted(points, reverse=True)][:most]


def _target_of(known: OwnerView) -> closing[Client]:
    configuration = known.info.configuration
    check_has_some(configuration)
    return closing(connect(expanded(configuration.sink)))


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
