from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from owner.ddl.sightings import Sighting, Sightings

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def place(increment: int) -> Position:
    return Position(ClusterTime(90, increment))


def seen(*pairs: tuple[int, float]) -> Sightings:
    found = Sightings()
    for end, moment in pairs:
        found = found.and_then(Sighting(place(end), at(moment)))
    return found


def test_the_worked_example() -> None:
    sightings = seen((1, 0), (1, 0.1), (7, 0.2), (14, 0.3))
    assert sightings.reached(place(1)) == Sighting(place(1), at(0.1))
    assert sightings.reached(place(14)) == sightings.latest == Sighting(place(14), at(0.3))


def test_a_checkpoint_before_all_that_was_seen_has_reached_nothing() -> None:
    assert seen((7, 0)).reached(place(6)) is None
    assert Sightings().reached(place(6)) is None


def test_an_answer_that_knows_less_than_an_earlier_one_does_not_take_it_back() -> None:
    assert seen((7, 0), (5, 1)).latest == Sighting(place(7), at(1))


@given(st.lists(st.integers(0, 3), max_size=3000))
def test_many_are_thinned_out_and_never_say_too_much(steps: list[int]) -> None:
    sightings, ends, end = Sightings(), [], 0
    for number, step in enumerate(steps):
        end += step
        ends.append(end)
        sightings = sightings.and_then(Sighting(place(end), at(number)))
    assert len(sightings.seen) <= 600
    for checkpoint in range(0, end + 1, max(1, end // 7)):
        reached = sightings.reached(place(checkpoint))
        known = int((reached.at - NOON).total_seconds()) + 1 if reached else 0
        assert all(each <= checkpoint for each in ends[:known])


def test_how_old_the_oldest_gap_is_stays_small_beside_its_age() -> None:
    sightings = seen(*((number, number) for number in range(20_000)))
    for behind in (10, 100, 1_000, 10_000):
        reached = sightings.reached(place(19_999 - behind))
        assert reached is not None
        exact = at(19_999 - behind)
        assert exact - reached.at <= timedelta(seconds=behind / 16)
