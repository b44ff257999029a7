"""How errors, commands and progress change the state of a changefeed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pydantic import TypeAdapter

from changefeed.errors import (
    ConfigurationError,
    ConflictError,
    FencedError,
    HistoryLost,
    InvariantError,
    NotFoundError,
    PipelineUnavailable,
    SinkMajorityStalled,
    SinkUnavailable,
)
from changefeed.lifecycle import (
    FIRST_BACK_OFF,
    LONGEST_BACK_OFF,
    PATIENCE,
    Command,
    ErrorReport,
    Event,
    Lifecycle,
    Sign,
    State,
    back_off,
)
from tests.invariants import check_lifecycle

NOW = datetime(2026, 11, 21, tzinfo=UTC)
RETRYABLE = ErrorReport.of(SinkUnavailable("no primary"), NOW)
PERMANENT = ErrorReport.of(HistoryLost("the oplog moved on"), NOW)
CONFIGURATION = ErrorReport.of(ConfigurationError(["sink: no such host"]), NOW)
INVARIANT = ErrorReport.of(InvariantError("checkpoint above barrier"), NOW)
FENCED = ErrorReport.of(FencedError("another owner"), NOW)
ERRORS = (RETRYABLE, PERMANENT, CONFIGURATION, INVARIANT, FENCED)

IN_STATE = {
    State.NORMAL: Lifecycle(),
    State.WARNING: Lifecycle(state=State.WARNING, error=RETRYABLE, since_at=NOW),
    State.PENDING: Lifecycle(
        state=State.PENDING, error=RETRYABLE, attempts=1, since_at=NOW, retry_at=NOW + FIRST_BACK_OFF
    ),
    State.STOPPED: Lifecycle(state=State.STOPPED, since_at=NOW),
    State.FAILED: Lifecycle(state=State.FAILED, error=PERMANENT, since_at=NOW),
    State.FINISHED: Lifecycle(state=State.FINISHED, since_at=NOW),
    State.REMOVED: Lifecycle(state=State.REMOVED, since_at=NOW),
}


def step(before: Lifecycle, event: Event, now: datetime = NOW) -> Lifecycle:
    after = before.after(event, now=now, random=Random(5))
    check_lifecycle(after)
    return after


N, W, P, S, F, D, R = State  # finishe*D*, since F is taken

TRANSITIONS: dict[Event, tuple[State, ...]] = {
    # from         N  W  P  S  F  D  R
    RETRYABLE:     (W, W, P, S, F, D, R),
    PERMANENT:     (F, F, F, F, F, D, R),
    CONFIGURATION: (F, F, F, F, F, D, R),
    INVARIANT:     (F, F, F, F, F, D, R),
    FENCED:        (N, W, P, S, F, D, R),
    Command.PAUSE:  (S, S, S, S, F, D, R),
    Command.RESUME: (N, W, N, N, N, N, R),
    Command.REMOVE: (R, R, R, R, R, R, R),
    Sign.PROGRESS:       (N, N, P, S, F, D, R),
    Sign.TARGET_REACHED: (D, D, D, S, F, D, R),
    Sign.TICK:           (N, W, P, S, F, D, R),
}  # fmt: skip


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize(
    "event", TRANSITIONS, ids=lambda event: event.code if isinstance(event, ErrorReport) else event
)
def test_each_event_leads_from_each_state_where_the_table_says(before: State, event: Event) -> None:
    expected = TRANSITIONS[event][list(State).index(before)]

    assert step(IN_STATE[before], event).state is expected


def test_a_short_outage_is_a_warning_and_stops_nothing() -> None:
    warned = step(Lifecycle(), RETRYABLE)
    still = step(warned, RETRYABLE, NOW + PATIENCE - timedelta(seconds=1))
    healed = step(still, Sign.PROGRESS)

    assert warned.running
    assert still.running
    assert still.since_at == NOW
    assert healed == Lifecycle(since_at=NOW)


def test_an_error_that_outlasts_patience_stops_the_pipelines_until_the_back_off_is_over() -> None:
    late = NOW + PATIENCE
    pending = step(IN_STATE[State.WARNING], RETRYABLE, late)

    assert pending.state is State.PENDING
    assert not pending.running
    assert pending.retry_at is not None
    assert step(pending, Sign.TICK, pending.retry_at - timedelta(milliseconds=1)) == pending

    again = step(pending, Sign.TICK, pending.retry_at)
    assert again.state is State.WARNING
    assert again.running
    assert again.error == RETRYABLE


def test_rounds_without_progress_wait_longer_each_time_and_progress_starts_over() -> None:
    lifecycle, now, waits = Lifecycle(), NOW, []
    for _ in range(9):
        lifecycle = step(lifecycle, RETRYABLE, now)
        now += PATIENCE
        lifecycle = step(lifecycle, RETRYABLE, now)
        assert lifecycle.retry_at is not None
        waits.append(lifecycle.retry_at - now)
        now = lifecycle.retry_at
        lifecycle = step(lifecycle, Sign.TICK, now)

    doubled = [10, 20, 40, 80, 160, 320, 600, 600, 600]
    assert all(
        timedelta(seconds=0.8 * most) <= wait <= timedelta(seconds=most)
        for most, wait in zip(doubled, waits, strict=True)
    )
    assert step(lifecycle, Sign.PROGRESS).attempts == 0


@given(st.integers(1, 10_000), st.integers())
def test_a_back_off_is_never_longer_than_ten_minutes_nor_shorter_than_eight_seconds(attempt: int, seed: int) -> None:
    assert FIRST_BACK_OFF * 0.8 <= back_off(attempt, Random(seed)) <= LONGEST_BACK_OFF


def test_changefeeds_that_failed_together_restart_at_different_times() -> None:
    assert len({back_off(3, Random(seed)) for seed in range(10)}) == 10


def test_what_a_report_says_fits_a_record_whatever_the_error_quotes() -> None:
    said = ErrorReport.of(SinkUnavailable("refused; command: " + "x" * 2_000_000), NOW).message
    assert said.startswith("refused; command: xxx")
    assert said.endswith(" more characters)")
    assert len(said) < 10_000


def test_the_first_permanent_error_stays_the_cause() -> None:
    failed = step(Lifecycle(), PERMANENT)

    assert step(failed, INVARIANT).error == PERMANENT


def test_a_later_retryable_error_is_the_one_shown() -> None:
    later = ErrorReport.of(SinkUnavailable("connection refused"), NOW)

    assert step(IN_STATE[State.WARNING], later).error == later
    assert step(IN_STATE[State.PENDING], later).retry_at == IN_STATE[State.PENDING].retry_at


def test_a_pause_keeps_the_error_and_a_resume_clears_it() -> None:
    paused = step(IN_STATE[State.WARNING], Command.PAUSE)

    assert paused.error == RETRYABLE
    assert step(paused, Command.RESUME).error is None


def test_whether_waiting_may_help_follows_from_the_error_tree() -> None:
    errors = (SinkUnavailable("x"), ConflictError("x"), HistoryLost("x"), NotFoundError("x"))
    reports = [ErrorReport.of(error, NOW) for error in errors]
    assert [report.retryable for report in reports] == [True, True, False, False]
    assert [report.lasting for report in reports] == [False, False, True, True]


def test_an_unknown_error_code_is_handled_by_its_retryable_flag() -> None:
    asleep = ErrorReport(code="sink_asleep", message="", retryable=True, at=NOW)
    gone = ErrorReport(code="sink_gone", message="", retryable=False, at=NOW)
    assert step(Lifecycle(), asleep).state is State.WARNING
    assert step(Lifecycle(), gone).state is State.FAILED


@pytest.mark.parametrize("lifecycle", IN_STATE.values(), ids=list(IN_STATE))
def test_a_lifecycle_round_trips_through_json(lifecycle: Lifecycle) -> None:
    adapter = TypeAdapter(Lifecycle)

    check_lifecycle(lifecycle)
    assert adapter.validate_json(adapter.dump_json(lifecycle)) == lifecycle


class AnyLife(RuleBasedStateMachine):
    """For any events in any order, the invariants hold and the promises of the docstring are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.lifecycle, self.now, self.random = Lifecycle(), NOW, Random(1)

    def happens(self, event: Event) -> None:
        before = self.lifecycle
        self.lifecycle = before.after(event, now=self.now, random=self.random)
        check_lifecycle(self.lifecycle)
        if self.lifecycle.state is not before.state:
            assert self.lifecycle.since_at == self.now
        assert before.state is not State.REMOVED or self.lifecycle == before

    @rule(seconds=st.integers(0, 900))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.happens(Sign.TICK)
        retry_at = self.lifecycle.retry_at
        assert retry_at is None or self.now < retry_at <= self.now + LONGEST_BACK_OFF

    @rule(error=st.sampled_from(ERRORS))
    def an_error(self, error: ErrorReport) -> None:
        was_running = self.lifecycle.running
        self.happens(error)
        if was_running and error.lasting:
            assert self.lifecycle == Lifecycle(state=State.FAILED, error=error, since_at=self.now)

    @rule(command=st.sampled_from([Command.PAUSE, Command.RESUME]))
    def a_command(self, command: Command) -> None:
        self.happens(command)
        if command is Command.PAUSE:
            assert not self.lifecycle.running
        else:
            assert self.lifecycle.running or self.lifecycle.state is State.REMOVED

    @rule(sign=st.sampled_from([Sign.PROGRESS, Sign.TARGET_REACHED]))
    def a_sign(self, sign: Sign) -> None:
        attempts = self.lifecycle.attempts
        was_running = self.lifecycle.running
        self.happens(sign)
        assert self.lifecycle.attempts == (0 if was_running or self.lifecycle.state is State.FINISHED else attempts)

    @invariant()
    def healthy_means_no_error(self) -> None:
        assert (self.lifecycle.state is State.NORMAL) <= (self.lifecycle.error is None)

    def teardown(self) -> None:
        """Removed is final."""
        for event in (Command.REMOVE, *TRANSITIONS):
            self.happens(event)
            assert self.lifecycle.state is State.REMOVED


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(max_examples=100, stateful_step_count=30)


def test_a_majority_that_stands_still_stays_a_warning_however_long_and_ends_with_progress() -> None:
    stalled = ErrorReport.of(SinkMajorityStalled("it stands still"), NOW)
    lifecycle = step(Lifecycle(), stalled)
    assert lifecycle.state is State.WARNING
    for hours in range(1, 5):
        lifecycle = step(lifecycle, stalled, NOW + timedelta(hours=hours))
        assert (lifecycle.state, lifecycle.error, lifecycle.attempts) == (State.WARNING, stalled, 0)
    assert step(lifecycle, Sign.PROGRESS, NOW + timedelta(hours=6)).state is State.NORMAL


@pytest.mark.parametrize(
    "own",
    [RETRYABLE.on("n1", alone=True), ErrorReport.of(PipelineUnavailable("no Java"), NOW).on("n1", alone=False)],
)
def test_the_trouble_of_a_node_stays_a_warning_however_long(own: ErrorReport) -> None:
    """A pause would stop the tables of the nodes that are well."""
    lifecycle = step(Lifecycle(), own)
    for minutes in range(1, 120):
        lifecycle = step(lifecycle, own, NOW + timedelta(minutes=minutes))
    assert (lifecycle.state, lifecycle.error) == (State.WARNING, own)


def test_an_outage_after_the_trouble_of_a_node_has_the_same_patience_as_any_other() -> None:
    lifecycle, later = step(Lifecycle(), RETRYABLE.on("n1", alone=True)), NOW + timedelta(hours=1)
    lifecycle = step(lifecycle, RETRYABLE, later)
    assert lifecycle.state is State.WARNING
    assert step(lifecycle, RETRYABLE, later + PATIENCE - timedelta(seconds=1)).state is State.WARNING
    assert step(lifecycle, RETRYABLE, later + PATIENCE).state is State.PENDING


def test_a_permanent_error_of_one_node_is_the_changefeeds() -> None:
    assert PERMANENT.on("n1", alone=True).node is None
    assert step(Lifecycle(), PERMANENT.on("n1", alone=True)).state is State.FAILED
