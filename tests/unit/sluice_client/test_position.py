"""Positions are totally ordered, and that order is the order of the stream."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest
from bson import json_util
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position, Window

_FEW_TIMES = st.builds(ClusterTime, st.integers(0, 2), st.integers(0, 2))
_TOKENS = st.sampled_from(["", "8264", "82642C", "82642D", "826500"])
POSITIONS = st.builds(Position, _FEW_TIMES, _TOKENS)

_RECORDED = Path(__file__).parents[2] / "fixtures" / "mongodb-4.3"


def _stream(path: Path) -> list[Position]:
    """The positions of real events, in the order in which a change stream sent them."""
    events = [json_util.loads(line) for line in path.read_text().splitlines()]
    return [Position(ClusterTime.from_bson(event["clusterTime"]), event["_id"]["_data"]) for event in events]


STREAMS = [_stream(_RECORDED / name) for name in ("replica-set-events.jsonl", "sharded-events.jsonl")]


def at(text: str) -> Position:
    return Position.parse(text)


@given(POSITIONS, POSITIONS, POSITIONS)
def test_the_order_is_total(a: Position, b: Position, c: Position) -> None:
    assert (a < b) + (a == b) + (a > b) == 1
    if a <= b <= c:
        assert a <= c


@given(_FEW_TIMES, _TOKENS.filter(bool))
def test_the_place_before_a_cluster_time_is_before_each_event_at_it(time: ClusterTime, token: str) -> None:
    assert Position(time) < Position(time, token) < Position(time.next())


@pytest.mark.parametrize("stream", STREAMS)
def test_real_events_come_in_the_order_of_their_positions(stream: list[Position]) -> None:
    assert all(earlier < later for earlier, later in pairwise(stream))
    assert sorted(random.Random(7).sample(stream, len(stream))) == stream


def test_real_transactions_have_events_that_only_the_token_orders() -> None:
    same_time = [pair for stream in STREAMS for pair in pairwise(stream) if pair[0].ts == pair[1].ts]

    assert same_time
    assert all(Position(earlier.ts) < earlier < later for earlier, later in same_time)


@pytest.mark.parametrize("stream", STREAMS)
@given(data=st.data())
def test_windows_side_by_side_hold_each_real_event_once(stream: list[Position], data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.sampled_from(stream), max_size=6).map(sorted))
    edges = [Position(stream[0].ts), *cuts, Position(stream[-1].ts.next())]
    windows = [Window(start, end) for start, end in pairwise(edges)]

    assert all(sum(event in window for window in windows) == 1 for event in stream)


def test_a_window_holds_its_start_and_not_its_end() -> None:
    window = Window(at("100.1"), at("100.2/8264"))

    assert at("100.1") in window
    assert at("100.1/8264") in window
    assert at("100.2") in window
    assert at("100.2/8264") not in window
    assert not window.empty
    assert str(window) == "[100.1, 100.2/8264)"


def test_a_window_at_one_position_is_empty_and_holds_nothing() -> None:
    window = Window(at("100.1"), at("100.1"))

    assert window.empty
    assert at("100.1") not in window


def test_a_window_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(ValueError, match=r"window ends at 100\.1, before its start 100\.2"):
        Window(at("100.2"), at("100.1"))


@given(POSITIONS)
def test_a_position_round_trips_through_text_and_json(position: Position) -> None:
    adapter = TypeAdapter(Position)

    assert Position.parse(str(position)) == position
    assert json.loads(adapter.dump_json(position)) == str(position)
    assert adapter.validate_json(adapter.dump_json(position)) == position


def test_the_case_of_a_token_does_not_matter() -> None:
    assert at("5.1/82ab") == at("5.1/82AB")
