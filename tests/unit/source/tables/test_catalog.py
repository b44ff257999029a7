"""Whether a DDL disturbed a reading of the catalog."""

from __future__ import annotations

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from source.tables.catalog import CatalogReading, Stability, stability_of

READING = CatalogReading(tables=(), position=Position(ClusterTime(100, 5)), after_ts=ClusterTime(100, 9))
BEYOND = Position(ClusterTime(100, 10))


def ddl(increment: int) -> DdlEvent:
    return DdlEvent(position=Position(ClusterTime(100, increment), "82"), type=DdlType.DROP_DATABASE, db="shop")


@pytest.mark.parametrize("increment", [5, 7, 9])
def test_a_ddl_while_reading_disturbs_it_at_once(increment: int) -> None:
    assert stability_of(READING, [ddl(increment)], Position(ClusterTime(100, 5))) is Stability.DISTURBED


@pytest.mark.parametrize("increment", [4, 10])
def test_a_ddl_before_or_after_does_not_disturb_it(increment: int) -> None:
    assert stability_of(READING, [ddl(increment)], BEYOND) is Stability.STABLE


@pytest.mark.parametrize(
    "resolved", [Position(ClusterTime(100, 5)), Position(ClusterTime(100, 9)), Position(ClusterTime(100, 9), "82")]
)
def test_nothing_is_decided_before_the_watch_has_passed_the_reading(resolved: Position) -> None:
    assert stability_of(READING, [], resolved) is Stability.UNDECIDED


def test_an_idle_source_can_be_read_too() -> None:
    idle = CatalogReading(tables=(), position=Position(ClusterTime(100, 6)), after_ts=ClusterTime(100, 5))
    assert stability_of(idle, [ddl(5)], Position(ClusterTime(100, 6))) is Stability.STABLE
