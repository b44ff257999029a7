"""What is known of sync points between the moment in which etcd has the newest one and the one in which the target has its record."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from admin.services.sync_points import listed, named
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.errors import NotFoundError, WrongState
from changefeed.records.node import RowCounts
from changefeed.records.requests import ChangefeedInfo
from changefeed.records.sync_point import SyncPoint, SyncPoints
from owner.etcd_view import OwnerView
from sink.mongodb.connection import connect
from sink.mongodb.sync_marks import SyncMarks

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEEP = timedelta(hours=1)

pytestmark = pytest.mark.since("5.0")


@pytest.fixture
def known(target_uri: str) -> OwnerView:
    feed = f"feed-{uuid.uuid4().hex}"
    configuration = Configuration.parse(
        {"id": feed, "source": "mongodb://s", "sink": target_uri, "sync_points": {"every": "10s"}}
    )
    return OwnerView(
        info=ChangefeedInfo(configuration=configuration, created_at=NOW),
        status=None,
        status_rev=0,
        barrier=None,
        barrier_rev=0,
        records={},
        bases={},
        assignments={},
        reports={},
        rows=RowCounts(),
        renames={},
        moves={},
        repairs={},
        stragglers={},
        requests={},
        skips=frozenset(),
        copied=frozenset(),
        processors={},
    )


@pytest.fixture
def marks(target_uri: str, known: OwnerView) -> Iterator[SyncMarks]:
    marks = SyncMarks(connect(target_uri), known.info.configuration.id, None, lambda: 30.0)
    yield marks
    marks.close()


def made(marks: SyncMarks, seconds: int) -> SyncPoint:
    source = ClusterTime(seconds, 0)
    return SyncPoint(source=source, target=marks.mark(source).target_ts, excepted=(), made_at=NOW)


def test_a_point_can_be_named_as_soon_as_etcd_has_it(known: OwnerView, marks: SyncMarks) -> None:
    first, second = made(marks, 1_795_000_020), made(marks, 1_795_000_030)
    marks.record(first, KEEP)
    between = replace(known, sync=SyncPoints(newest=second))
    assert named(between, "latest") == named(between, str(second.source)) == named(between, "1795000030") == second
    assert named(between, str(first.source)) == first
    assert [point.source_ts for point in listed(between, 0)] == [str(second.source), str(first.source)]
    assert [point.source_ts for point in listed(between, 1)] == [str(second.source)]
    marks.record(second, KEEP)
    assert [point.source_ts for point in listed(between, 0)] == [str(second.source), str(first.source)]


def test_a_record_that_is_newer_than_what_was_read_of_etcd_is_the_latest(known: OwnerView, marks: SyncMarks) -> None:
    first, second = made(marks, 1_795_000_020), made(marks, 1_795_000_030)
    marks.record(first, KEEP)
    marks.record(second, KEEP)
    assert named(replace(known, sync=SyncPoints(newest=first)), "latest") == second


def test_a_point_that_nobody_made_is_not_found(known: OwnerView, marks: SyncMarks) -> None:
    made(marks, 1_795_000_020)
    for text in ("latest", "1795000020.0"):
        with pytest.raises(NotFoundError, match=f"has no sync point {text}.*sync-now"):
            named(known, text)


def test_a_changefeed_without_sync_points_says_how_to_have_some(known: OwnerView) -> None:
    plain = known.info.configuration.model_copy(update={"sync_points": None})
    with pytest.raises(WrongState, match="update it with sync_points"):
        named(replace(known, info=replace(known.info, configuration=plain)), "latest")
