"""The position that a changefeed must have before another capture can continue from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Scope
from changefeed.table import TableName
from owner.decision.capture_change import Standing, obstacle

_A, _B = TableName("shop", "a"), TableName("shop", "b")


def at(seconds: int, token: str = "") -> Position:
    return Position(ClusterTime(seconds, 1), token)


def record(position: Position, state: DdlState) -> DdlRecord:
    event = DdlEvent(type=DdlType.CREATE_INDEXES, position=position, db="shop", table=_B)
    return DdlRecord(event=event, scope=Scope(), state=state, seen_at=datetime(2026, 11, 22, tzinfo=UTC))


LEVEL = Standing(
    still=True,
    checkpoint=at(10),
    resolved=at(12),
    places={_A: at(10), _B: at(10)},
    copying=frozenset(),
    records=[record(at(9, "82AB"), DdlState.DONE)],
)


def test_tables_at_one_bare_time_with_all_that_is_known_before_it_may_go_on_by_another_capture() -> None:
    assert obstacle(LEVEL) is None
    assert obstacle(replace(LEVEL, places={}, records=[])) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"still": False}, "its pipelines have not stopped yet; pause it"),
        ({"records": [record(at(9, "82AB"), DdlState.PENDING)]}, "createIndexes shop.b.* is not done; resume it"),
        ({"records": [record(at(10, "82AB"), DdlState.EXECUTING)]}, "createIndexes shop.b.* is not done; resume it"),
        ({"records": [record(at(10, "82AB"), DdlState.DONE)]}, "createIndexes shop.b.* is done, but no table has reached it"),
        ({"records": [record(at(11), DdlState.SKIPPED)]}, "createIndexes shop.b.* is done, but no table has reached it"),
        ({"copying": {_B}}, "table shop.b is being copied; resume it"),
        ({"places": {_A: at(10), _B: at(10, "82AB")}}, "table shop.b is between changes of one cluster time, 10.1"),
        ({"places": {_A: at(10), _B: at(8)}}, "table shop.b is at 8.1, and others are at 10.1; .*give it a target"),
        ({"places": {}, "checkpoint": at(10, "82AB")}, "its DDL watch is between changes of one cluster time, 10.1"),
        ({"resolved": at(12, "82AB")}, "its DDL watch is between changes of one cluster time, 12.1"),
    ],
)  # fmt: skip
def test_what_is_in_the_way_is_named_with_what_to_do(change: dict[str, Any], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(obstacle(replace(LEVEL, **change)))


def test_a_table_that_is_not_with_the_others_keeps_a_position_of_the_present_capture() -> None:
    stopped = obstacle(replace(LEVEL, stragglers=frozenset({_A})))
    assert stopped is not None
    assert "is not with the others" in stopped
