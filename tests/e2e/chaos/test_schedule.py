"""The schedule of a chaos run is a function of its seed, and leaves the cluster able to recover."""

from __future__ import annotations

import pytest

from tests.e2e.chaos.schedule import NODES, What, schedule

_HOUR = 3600.0


def test_a_seed_gives_the_same_schedule_again_and_another_seed_another() -> None:
    assert schedule(7, _HOUR) == schedule(7, _HOUR)
    assert schedule(7, _HOUR) != schedule(8, _HOUR)


def test_a_shorter_run_of_a_seed_is_the_beginning_of_a_longer_one() -> None:
    shorter, longer = schedule(7, 600), schedule(7, _HOUR)
    assert shorter == longer[: len(shorter)]


def test_everything_happens_within_a_run_of_usual_length() -> None:
    assert {event.what for event in schedule(7, 1200)} == set(What)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_happens_to_what_is_down_and_one_node_is_always_up(seed: int) -> None:
    down: dict[str, float] = {}
    for event in schedule(seed, _HOUR):
        assert down.get(event.subject, 0.0) <= event.at
        down[event.subject] = event.at + event.lasts
        assert sum(down.get(node, 0.0) > event.at for node in NODES) < len(NODES)
