"""How reading continues when a stream breaks off at a large event."""

from __future__ import annotations

from pymongo.errors import AutoReconnect, ServerSelectionTimeoutError

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from source.stream.window_reader import Care

SEEN = Position(ClusterTime(5, 1), "8205")


def test_events_are_asked_for_one_by_one_then_by_twos_until_all_is_well() -> None:
    care = Care()
    care.failed(None)
    asked = []
    while care.most is not None:
        asked.append(care.most)
        care.succeeded()
    assert asked == [2**power for power in range(15)]


def test_a_single_event_that_breaks_the_stream_off_is_large() -> None:
    care, large = Care(), []
    care.failed(None)
    large.append(care.next_is_large)
    care.succeeded()
    care.failed(SEEN)
    large.append(care.next_is_large)
    care.failed(SEEN)
    large.append(care.next_is_large)
    care.passed(SEEN)
    large.append(care.next_is_large)
    assert large == [False, False, True, False]


def test_what_was_seen_is_not_shown_again() -> None:
    care = Care()
    care.failed(SEEN)
    assert care.stages(SEEN.ts) == [{"$match": {"_id._data": {"$gt": "8205"}}}]
    assert care.stages(ClusterTime(5, 2)) == []


def test_a_connection_lost_twice_at_one_place_means_a_large_event() -> None:
    care, lost = Care(), AutoReconnect("connection closed")
    assert not care.lost_again(lost, None)
    assert not care.lost_again(lost, SEEN)
    assert care.lost_again(lost, SEEN)


def test_an_unavailable_server_does_not_mean_a_large_event() -> None:
    care, away = Care(), ServerSelectionTimeoutError("no primary")
    assert [care.lost_again(away, SEEN) for _ in range(3)] == [False, False, False]
