"""When a node's Spark counts as ready, and when not any more."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from changefeed.errors import PipelineUnavailable
from changefeed.lifecycle import ErrorReport
from processor.spark.fitness import DOUBT, FORGET, LONGEST_PAUSE, TRIAL, Fitness, trial

ERROR = ErrorReport.of(PipelineUnavailable("no Java"), datetime(2026, 11, 21, tzinfo=UTC))


def broken(fitness: Fitness, now: float) -> Fitness:
    """Two probes have failed."""
    return fitness.failed(ERROR, now).probe_failed(ERROR, now).probe_failed(ERROR, now)


def test_spark_that_has_run_no_job_is_not_ready_and_is_probed_until_it_has() -> None:
    starting = Fitness()
    assert (starting.health.ready, starting.probe_at) == (False, 0)
    failed = starting.probe_failed(ERROR, 5)
    assert (failed.health.ready, failed.health.error, failed.probe_at) == (False, ERROR, 6)
    ready = failed.ran(60)
    assert (ready.health.ready, ready.health.error, ready.probe_at) == (True, None, None)


def test_the_pauses_between_probes_of_a_broken_spark_grow_to_a_minute() -> None:
    fitness, pauses = Fitness(), []
    for _ in range(9):
        fitness = fitness.probe_failed(ERROR, 100)
        assert fitness.probe_at is not None
        pauses.append(fitness.probe_at - 100)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert LONGEST_PAUSE.total_seconds() == 60


def test_a_failed_window_alone_moves_nothing() -> None:
    ready = Fitness().ran(0)
    doubted = ready.failed(ERROR, 10)
    assert (doubted.health.ready, doubted.probe_at) == (True, 10)
    once = doubted.probe_failed(ERROR, 11)
    assert once.health.ready
    assert once.ran(15) == replace(ready, running_since=15)


def test_two_failed_probes_in_a_row_make_it_unfit() -> None:
    unfit = broken(Fitness().ran(0), 10)
    assert (unfit.health.ready, unfit.health.error, unfit.probe_at) == (False, ERROR, 12)


def test_a_probe_that_is_silent_after_a_failure_makes_it_unfit() -> None:
    doubted = Fitness().ran(0).failed(ERROR, 10)
    assert doubted.looked(10 + DOUBT.total_seconds() - 1).health.ready
    assert not doubted.looked(10 + DOUBT.total_seconds()).health.ready


def test_a_spark_that_comes_and_goes_has_to_run_for_longer_each_time() -> None:
    fitness, now = Fitness().ran(0), 0.0
    for lapse in range(1, 4):
        fitness = broken(fitness, now)
        seconds = trial(lapse).total_seconds()
        assert seconds == TRIAL.total_seconds() * 2 ** (lapse - 1)
        fitness = fitness.ran(now + 1).ran(now + seconds)
        assert not fitness.health.ready
        assert fitness.probe_at is not None, "it goes on proving itself although it has no tables"
        fitness = fitness.ran(now + 1 + seconds)
        assert fitness.health.ready
        now += 1 + seconds


def test_a_failure_during_the_trial_begins_it_again() -> None:
    unfit = broken(Fitness().ran(0), 10).ran(20).probe_failed(ERROR, 25).ran(28)
    assert not unfit.ran(28 + TRIAL.total_seconds() - 1).health.ready
    assert unfit.ran(28 + TRIAL.total_seconds()).health.ready


def test_an_old_lapse_is_forgotten() -> None:
    again = broken(Fitness().ran(0), 10).ran(20).ran(40)
    later = 10 + FORGET.total_seconds()
    assert again.ran(later).lapses == 0
    assert broken(again, later).lapses == 1


@given(st.lists(st.tuples(st.sampled_from(("ran", "failed", "probe_failed", "looked")), st.floats(0, 100)), min_size=1))
def test_it_is_probed_whenever_nothing_says_that_it_runs(steps: list[tuple[str, float]]) -> None:
    fitness, now = Fitness(), 0.0
    for step, later in steps:
        now += later
        reports = () if step in ("ran", "looked") else (ERROR,)
        before, fitness = fitness, getattr(fitness, step)(*reports, now)
        assert fitness.probe_at is not None or (fitness.ready and fitness.error is None)
        assert fitness.health.error is None or not fitness.ready
        assert not (fitness.ready and not before.ready) or step == "ran"
        assert not (before.ready and not fitness.ready) or step in ("probe_failed", "looked")
