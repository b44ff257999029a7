from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.position import Position
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId
from owner.decision.state import horizon

A = TableId("a" * 32)
BEGAN = Position(ClusterTime(100, 1))
NOW, EARLIER = Position(ClusterTime(5_000, 7)), Position(ClusterTime(4_940, 7))


def seen(copying: AbstractSet[TableId] = frozenset(), *, overdue: int | None = None, **fields: Any) -> Position | None:
    configuration = Configuration.parse({"id": "f", "source": "mongodb://s", "sink": "mongodb://t", **fields})
    status = ChangefeedStatus(
        info_version=1, epoch=1, copied_from=BEGAN, checkpoint=BEGAN, resolved=BEGAN, overdue_seconds=overdue
    )
    return horizon(configuration, status, NOW, lambda start: copying if start == BEGAN else {A})


def test_what_is_newer_than_the_delay_waits() -> None:
    assert seen(delay="1m") == EARLIER
    assert seen() is None


def test_a_cut_over_waits_for_nothing() -> None:
    assert seen(delay="1m", target="4999.1") is None


def test_first_copies_do_not_wait() -> None:
    assert seen({A}, delay="1m") is None


def test_once_the_delay_has_begun_no_copy_lets_the_changes_of_others_through() -> None:
    """A first copy may be resumed long after, under an owner that did not see the delay begin."""
    assert seen({A}, delay="1m", overdue=0) == EARLIER
