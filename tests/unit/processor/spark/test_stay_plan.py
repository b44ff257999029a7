"""Which windows go to a staying task, and which task leaves when."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.records.requests import ChangefeedId
from processor.spark.stay_plan import NextWindow, Room, Staying, StayLimits, Way, leaving, way_of

F, G, H = ChangefeedId("f"), ChangefeedId("g"), ChangefeedId("h")
LIMITS = StayLimits(follows=2.0, idle=2.0, longest=30.0, without=60.0)
WINDOW = NextWindow(changefeed=F, base="b1", run=1, attempt="a1")
IDLE = Staying(base="b1", run=1, attempt="a1", begun_at=0.0, idle_since=0.5)


def test_the_first_window_of_a_lane_begins_a_stay_where_there_is_room() -> None:
    assert way_of(WINDOW, Room(slots=2), 1.0) is Way.BEGIN
    assert way_of(WINDOW, Room(slots=2, following={G: 3.0}), 1.0) is Way.BEGIN
    assert way_of(WINDOW, Room(slots=2, following={G: 3.0, H: 3.0}), 1.0) is Way.JOB
    assert way_of(WINDOW, Room(slots=2, following={G: 3.0, H: 3.0}), 3.0) is Way.BEGIN


def test_windows_go_to_the_task_that_stays() -> None:
    room = Room(slots=1, following={F: 3.0}, staying={F: IDLE})
    assert leaving(room, LIMITS, 1.0, WINDOW) == ()
    assert way_of(WINDOW, room, 1.0) is Way.HAND_OVER


@pytest.mark.parametrize("other", [replace(WINDOW, base="b2"), replace(WINDOW, run=2), replace(WINDOW, attempt="a2")])
def test_another_base_run_or_attempt_ends_a_stay(other: NextWindow) -> None:
    room = Room(slots=2, following={F: 3.0}, staying={F: IDLE})
    assert leaving(room, LIMITS, 1.0, other) == (F,)
    assert leaving(room, LIMITS, 1.0, replace(other, changefeed=G)) == ()
    assert way_of(other, replace(room, staying={}), 1.0) is Way.BEGIN


def test_a_stay_is_not_longer_than_its_bound_even_at_work() -> None:
    room = Room(slots=2, following={F: 99.0}, staying={F: replace(IDLE, idle_since=None)})
    assert leaving(room, LIMITS, 29.9) == ()
    assert leaving(room, LIMITS, 30.0) == (F,)


def test_an_idle_stay_leaves_and_one_at_work_does_not() -> None:
    room = Room(slots=2, following={F: 99.0}, staying={F: IDLE})
    assert leaving(room, LIMITS, 2.4) == ()
    assert leaving(room, LIMITS, 2.5) == (F,)
    assert leaving(replace(room, staying={F: replace(IDLE, idle_since=None)}), LIMITS, 2.5) == ()


def test_where_copies_or_wide_windows_want_slots_nobody_stays() -> None:
    room = Room(slots=2, following={F: 3.0}, staying={F: IDLE}, others=1)
    assert leaving(room, LIMITS, 1.0) == ()
    crowded = replace(room, others=2)
    assert leaving(crowded, LIMITS, 1.0) == (F,)
    assert way_of(WINDOW, replace(crowded, staying={}), 1.0) is Way.JOB


def test_tasks_of_lanes_that_follow_no_more_make_room_for_one_that_does() -> None:
    """Otherwise its task would wait until the idle tasks time out and free their slots."""
    room = Room(slots=2, following={G: 1.0, H: 9.0}, staying={G: IDLE, H: IDLE})
    assert leaving(room, LIMITS, 1.5) == ()
    assert leaving(room, LIMITS, 1.5, WINDOW) == (G,)
    assert way_of(WINDOW, replace(room, staying={H: IDLE}), 1.5) is Way.BEGIN


def test_where_lanes_outnumber_slots_nobody_stays() -> None:
    room = Room(slots=2, following={F: 3.0, G: 3.0}, staying={F: IDLE})
    assert leaving(room, LIMITS, 1.0) == ()
    crowded = replace(room, following={F: 3.0, G: 3.0, H: 1.5})
    assert leaving(crowded, LIMITS, 1.0) == (F,)
    assert leaving(crowded, LIMITS, 1.5) == ()


def test_a_task_that_could_not_reach_its_driver_is_not_sent_again_for_a_while() -> None:
    room = Room(slots=2, following={F: 99.0}, no_way_until=61.0)
    assert way_of(WINDOW, room, 60.9) is Way.JOB
    assert way_of(WINDOW, room, 61.0) is Way.BEGIN


def test_without_a_slot_that_is_known_every_window_is_a_job() -> None:
    assert way_of(WINDOW, Room(slots=0, following={F: 3.0}), 1.0) is Way.JOB


_TIMES = st.floats(0, 40, allow_nan=False)
_FEEDS = st.sampled_from([F, G, H])
_STAYING = st.builds(
    Staying,
    base=st.sampled_from(["b1", "b2"]),
    run=st.sampled_from([1, 2]),
    attempt=st.just("a1"),
    begun_at=_TIMES,
    idle_since=st.none() | _TIMES,
)
_ROOMS = st.builds(
    Room,
    slots=st.integers(0, 4),
    following=st.dictionaries(_FEEDS, _TIMES),
    staying=st.dictionaries(_FEEDS, _STAYING),
    others=st.integers(0, 5),
    no_way_until=_TIMES,
)


@given(_ROOMS, _TIMES)
def test_who_stays_leaves_room_for_everything_else_and_is_handed_windows_of_its_own(room: Room, now: float) -> None:
    left = leaving(room, LIMITS, now, WINDOW)
    after = replace(room, staying={id: known for id, known in room.staying.items() if id not in left})
    others_follow = sum(1 for id, until in room.following.items() if now < until and id not in after.staying)
    if after.staying and all(now < room.following.get(id, now) for id in after.staying):
        assert len(after.staying) + others_follow + room.others <= room.slots
    way = way_of(WINDOW, after, now)
    if way is Way.HAND_OVER:
        assert (after.staying[F].base, after.staying[F].run, after.staying[F].attempt) == ("b1", 1, "a1")
    if way is Way.BEGIN:
        assert F not in after.staying
