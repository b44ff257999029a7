"""The cluster under many seeds. A failed seed prints its history and the command that replays it."""

from __future__ import annotations

from collections.abc import Iterable
from random import SystemRandom

import pytest

from tests.simulation.run import Outcome, many, told

_ONCE_RED = (
    7,
    9,
    17,
    32,
    129,
    256,
    343,
    354,
    919,
    995,
    1511,
    5472,
    700166,
    701234,
    701302,
    901368,
    945658552,
    60914,
    107844390,
    600132,
    700474,
    701092,
    1000777,
    1000781,
    1600291,
    1500402,
    7001085,
    7600473,
    7603553,
    7703274,
    7704287,
    7707456,
    7800046,
    7709489,
    8101622,
)
"""Seeds that failed with earlier workloads. What they found is pinned in unit tests, see docs/bugs-found.md."""

_SHARDED_ONCE_RED = (
    4,
    9,
    20,
    25,
    28,
    51,
    72,
    108,
    109,
    125,
    134,
    1017,
    5255,
    5325,
    7654,
    310669,
    910132,
    910263,
    910367,
    911391,
    911990,
    3001057,
    3003491,
    3009353,
    3020288,
    5002780,
    5004890,
    7000854,
    8001016,
)
"""Of a sharded source."""

_KEPT_ONCE_RED = (10, 26, 31, 43, 45, 47)
"""Of copies that may remove nothing at the target."""

_SLOW_ONCE_RED = (9, 30)
"""Of a target that is slow with one table."""
_LINES = 60


def _red(outcomes: Iterable[Outcome]) -> str:
    """The histories of failed seeds. Empty: all passed."""
    return "\n\n".join("\n".join([*outcome.history[-_LINES:], told(outcome)]) for outcome in outcomes if outcome.error)


def test_the_same_seeds_as_always_are_well() -> None:
    red = _red(many([*range(20), *_ONCE_RED], sharded=False))
    assert not red, red


def test_a_sharded_source_is_replicated_like_any() -> None:
    red = _red(many([*range(10), *_SHARDED_ONCE_RED], sharded=True))
    assert not red, red


def test_seeds_that_nobody_has_seen_are_well() -> None:
    assert not (red := _red(many(_unseen(), sharded=False))), red


@pytest.mark.soak
def test_seeds_of_a_sharded_source_that_nobody_has_seen_are_well() -> None:
    assert not (red := _red(many(_unseen(), sharded=True))), red


def _unseen() -> range:
    first = SystemRandom().randrange(10**9)
    print(f"seeds from {first} on")  # noqa: T201  # a failure must be reproducible
    return range(first, first + 40)


def test_tasks_that_wait_for_a_limit_keep_their_promises() -> None:
    red = _red(many(range(4), limited=True))
    assert not red, red


def test_the_rows_of_other_tables_do_not_wait_for_those_of_a_slow_one() -> None:
    red = _red(many([*range(4), *_SLOW_ONCE_RED], slow=True))
    assert not red, red


def test_rows_that_the_target_has_and_refuses_arrive_in_the_end() -> None:
    red = _red(many(range(8), refusing=True))
    assert not red, red


def test_what_is_applied_late_arrives() -> None:
    red = _red(many(range(4), delayed=True))
    assert not red, red


def test_what_the_target_had_before_a_copy_stays_and_nothing_else_does() -> None:
    red = _red(many([*range(10), *_KEPT_ONCE_RED], kept=True))
    assert not red, red


def test_where_nothing_goes_wrong_all_is_well() -> None:
    red = _red(many(range(20), faults=False))
    assert not red, red


def test_a_seed_is_the_same_run_in_each_process() -> None:
    once, again = (next(iter(many([seed], keep_history=True))) for seed in (5, 5))
    assert len(once.history) > 100
    assert once.history == again.history
    assert (once.actions, once.simulated, once.met) == (again.actions, again.simulated, again.met)
