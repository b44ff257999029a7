"""Every token of the recorded streams, and the order of Sluice's own tokens among the server's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bson import json_util
from hypothesis import given
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from source.resume_token import cluster_ts_of, is_high_water_mark, oplog_ddl_token, position_of

RECORDED = Path(__file__).parents[2] / "fixtures" / "mongodb-4.3"
HIGH_WATER_MARK_V1 = "826B01046A000000112B0229296E04"
HIGH_WATER_MARK_V2 = "826B01046A000000112B0429296E1404"
INSERT_V2 = (
    "826B01046A000000112B042C0100296E5A1004E859F91DEFED4324B3C16153DB5F4643"
    "463C6F7065726174696F6E54797065003C696E736572740046646F63756D656E744B657900461E5F6964002B02000004"
)


def recorded(name: str) -> list[dict[str, Any]]:
    return [json_util.loads(line) for line in (RECORDED / name).read_text().splitlines()]


@pytest.fixture(params=["replica-set-events.jsonl", "sharded-events.jsonl"])
def events(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return recorded(request.param)


def test_each_recorded_token_contains_its_events_cluster_time(events: list[dict[str, Any]]) -> None:
    for event in events:
        assert cluster_ts_of(event["_id"]["_data"]) == ClusterTime.from_bson(event["clusterTime"])
        assert not is_high_water_mark(event["_id"]["_data"])


def test_recorded_tokens_sort_as_their_events_came(events: list[dict[str, Any]]) -> None:
    positions = [position_of(event["_id"]["_data"]) for event in events]
    assert positions == sorted(positions)
    assert len(set(positions)) == len(positions)


@pytest.mark.parametrize("token", [HIGH_WATER_MARK_V1, HIGH_WATER_MARK_V2])
def test_a_high_water_mark_is_the_position_before_everything_of_its_time(token: str) -> None:
    assert is_high_water_mark(token)
    assert position_of(token) == Position(ClusterTime(0x6B01046A, 0x11))


def test_an_event_token_of_version_two() -> None:
    assert not is_high_water_mark(INSERT_V2)
    assert position_of(INSERT_V2) == Position(ClusterTime(0x6B01046A, 0x11), INSERT_V2)


def test_the_position_of_a_long_token_is_short_and_keeps_its_order() -> None:
    long = [INSERT_V2 + digit * 3_000_000 for digit in "19"]
    later = INSERT_V2.replace("6B01046A00000011", "6B01046A00000012")
    positions = [position_of(INSERT_V2), *map(position_of, long), position_of(later)]
    assert positions == sorted(set(positions))
    assert max(len(position.token) for position in positions) == 1024


@pytest.mark.parametrize(
    "text",
    [
        "",
        "82",
        "816B01046A000000112B0229296E04",
    ],
)
def test_an_invalid_token_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a resume token"):
        cluster_ts_of(text)


def test_a_ddl_of_the_oplog_stands_between_the_high_water_mark_and_the_events_of_its_time() -> None:
    time = ClusterTime(0x6B01046A, 0x11)
    first, second = (oplog_ddl_token(time, ordinal) for ordinal in (0, 1))
    event_v1 = INSERT_V2.replace("2B042C", "2B022C")
    assert HIGH_WATER_MARK_V1 < first < second < event_v1 < INSERT_V2
    assert Position(time) < position_of(first) < position_of(second) < position_of(INSERT_V2)
    assert not is_high_water_mark(first)


@given(st.integers(0, 2**64 - 1), st.integers(0, 0xFFFF), st.integers(0, 0xFFFF))
def test_tokens_of_ours_sort_by_time_then_ordinal(time: int, one: int, other: int) -> None:
    cluster_ts = ClusterTime.from_int(time)
    a, b = oplog_ddl_token(cluster_ts, one), oplog_ddl_token(cluster_ts, other)
    assert (a < b) == (one < other)
    assert cluster_ts_of(a) == cluster_ts


def test_more_ddls_than_a_token_can_number_are_refused() -> None:
    with pytest.raises(ValueError, match="65536"):
        oplog_ddl_token(ClusterTime(1, 1), 0x10000)
