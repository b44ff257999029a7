"""The cluster under many seeds. A failed seed prints its history and the command that replays it."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from multiprocessing.pool import Pool
from random import SystemRandom
from typing import Any

import pytest

from tests.simulation.run import Outcome, many, simulate, told, workers

pytestmark = pytest.mark.costly("up to twenty lives of a cluster; `make nightly` has ten thousand")

_LINES = 60


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with workers() as started:
        yield started


def _red(outcomes: Iterable[Outcome]) -> str:
    """The histories of failed seeds. Empty: all passed."""
    return "\n\n".join("\n".join([*outcome.history[-_LINES:], told(outcome)]) for outcome in outcomes if outcome.error)


def test_the_same_seeds_as_always_are_well(pool: Pool) -> None:
    red = _red(many(pool, range(16), sharded=False))
    assert not red, red


def test_a_sharded_source_is_replicated_like_any(pool: Pool) -> None:
    red = _red(many(pool, range(6), sharded=True))
    assert not red, red


def test_sync_points_of_a_sharded_source_are_true(pool: Pool) -> None:
    red = _red(many(pool, range(3), sharded=True, synced=True, sink="mongodb"))
    assert not red, red


@pytest.mark.soak
def test_seeds_that_nobody_has_seen_are_well(pool: Pool) -> None:
    assert not (red := _red(many(pool, _unseen(), sharded=False))), red


@pytest.mark.soak
@pytest.mark.parametrize("mode", [{}, {"synced": True, "sink": "mongodb"}])
def test_seeds_of_a_sharded_source_that_nobody_has_seen_are_well(pool: Pool, mode: dict[str, Any]) -> None:
    assert not (red := _red(many(pool, _unseen(), sharded=True, **mode))), red


def _unseen() -> range:
    first = SystemRandom().randrange(10**9)
    print(f"seeds from {first} on")  # noqa: T201  # a failure must be reproducible
    return range(first, first + 40)


def test_tasks_that_wait_for_a_limit_keep_their_promises(pool: Pool) -> None:
    red = _red(many(pool, range(4), limited=True))
    assert not red, red


def test_the_rows_of_other_tables_do_not_wait_for_those_of_a_slow_one(pool: Pool) -> None:
    red = _red(many(pool, range(2), slow=True))
    assert not red, red


def test_rows_that_the_target_has_and_refuses_arrive_in_the_end(pool: Pool) -> None:
    red = _red(many(pool, range(4), refusing=True))
    assert not red, red


def test_unique_values_change_hands_in_the_order_of_the_source(pool: Pool) -> None:
    red = _red(many(pool, range(4), unique=True, faults=False))
    assert not red, red


def test_tables_that_share_a_name_at_the_target_keep_their_rows(pool: Pool) -> None:
    red = _red(many(pool, range(4), gathered=True, sharded=False, sink="mongodb"))
    assert not red, red


@pytest.mark.parametrize("sharded", [False, True])
def test_full_capped_tables_keep_what_the_source_keeps(pool: Pool, sharded: bool) -> None:
    red = _red(many(pool, range(3), full=True, sharded=sharded, faults=False))
    assert not red, red


def test_what_is_applied_late_arrives(pool: Pool) -> None:
    red = _red(many(pool, range(4), delayed=True))
    assert not red, red


def test_what_the_target_had_before_a_copy_stays_and_nothing_else_does(pool: Pool) -> None:
    red = _red(many(pool, range(5), kept=True))
    assert not red, red


def test_files_hold_what_the_source_has_had(pool: Pool) -> None:
    red = _red(many(pool, range(5), sink="files", sharded=False))
    assert not red, red


def test_topics_hold_what_the_source_has_had(pool: Pool) -> None:
    red = _red(many(pool, range(5), sink="topics", sharded=False))
    assert not red, red


def test_where_nothing_goes_wrong_all_is_well(pool: Pool) -> None:
    red = _red(many(pool, range(4), faults=False))
    assert not red, red


def _run_where_garbage_is_looked_for(allocations: int) -> Outcome:
    gc.set_threshold(allocations)
    return simulate(29, keep_history=True)


def test_a_seed_is_the_same_run_in_each_process(pool: Pool) -> None:
    once, again = pool.map(_run_where_garbage_is_looked_for, (300, 700), chunksize=1)
    assert len(once.history) > 100
    assert once.history == again.history
    assert (once.actions, once.simulated, once.met) == (again.actions, again.simulated, again.met)
