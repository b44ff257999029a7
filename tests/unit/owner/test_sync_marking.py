"""When a sync point is aimed at, as the owner asks for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.lifecycle import Lifecycle, State
from changefeed.position import Position
from changefeed.records.requests import ChangefeedId
from changefeed.records.status import ChangefeedStatus
from changefeed.records.sync_point import SyncPoints
from owner.background import Background
from owner.decision.sync_hold import place_of
from owner.sync_marking import SyncMarking

ID = ChangefeedId("f")


def at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 0))


def configuration(**fields: Any) -> Configuration:
    parsed = {"id": ID, "source": "mongodb://a", "sink": "mongodb://b", "sync_points": {"every": "60s"}, **fields}
    return Configuration.parse(parsed)


def test_points_go_on_when_a_delay_begins_while_the_changefeed_runs() -> None:
    """The barrier stands two minutes behind the source then, which is not late."""
    sink = SimpleNamespace(sync_target=lambda: SimpleNamespace(close=lambda: None))
    marking = SyncMarking(ID, configuration(), cast("Any", sink), Background(lambda: None), cast("Any", None))
    status = ChangefeedStatus(
        lifecycle=Lifecycle(state=State.NORMAL), checkpoint=at(880), resolved=at(880), run=1, info_version=1, epoch=1
    )

    def aim(wanted: Configuration) -> Position | None:
        latest = SimpleNamespace(end=at(800), at=datetime.now(UTC) + timedelta(hours=1))
        known = SimpleNamespace(
            info=SimpleNamespace(configuration=wanted),
            sync=SyncPoints(),
            sync_asked=False,
            barrier=None,
            reports={},
            assignments={},
        )
        memory = SimpleNamespace(sightings=SimpleNamespace(latest=latest))
        return marking.aim(cast("Any", known), status, cast("Any", memory), at(1000))

    assert aim(configuration()) is None, "without a delay the barrier is too far behind"
    assert aim(configuration(delay="2m")) == place_of(ClusterTime(900, 0))
    marking.close()
