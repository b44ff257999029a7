"""Whether a DDL disturbed a reading of the catalog."""

from __future__ import annotations

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from source.tables.catalog import CatalogReading, disturbs, passed

READING = CatalogReading(tables=(), position=Position(ClusterTime(100, 5)), after_ts=ClusterTime(100, 9))
BEYOND = Position(ClusterTime(100, 10))


def ddl(increment: int) -> DdlEvent:
    return DdlEvent(position=Position(ClusterTime(100, increment), "82"), type=DdlType.DROP_DATABASE, db="shop")


@pytest.mark.parametrize("increment", [5, 7, 9])
def test_a_ddl_while_reading_disturbs_it(increment: int) -> None:
    assert disturbs(READING, ddl(increment))


@pytest.mark.parametrize("increment", [4, 10])
def test_a_ddl_before_or_after_does_not_disturb_it(increment: int) -> None:
    assert not disturbs(READING, ddl(increment))


@pytest.mark.parametrize(
    "resolved", [Position(ClusterTime(100, 5)), Position(ClusterTime(100, 9)), Position(ClusterTime(100, 9), "82")]
)
def test_nothing_is_decided_before_the_watch_has_passed_the_reading(resolved: Position) -> None:
    assert not passed(READING, resolved)
    assert passed(READING, BEYOND)


def test_an_idle_source_can_be_read_too() -> None:
    idle = CatalogReading(tables=(), position=Position(ClusterTime(100, 6)), after_ts=ClusterTime(100, 5))
    assert not disturbs(idle, ddl(5))
    assert passed(idle, Position(ClusterTime(100, 6)))
