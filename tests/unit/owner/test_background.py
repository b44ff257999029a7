"""Questions run in threads, are answered once, and are repeated after their delay."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest

from changefeed.errors import InvariantError, SourceUnavailable, SourceUnsupported
from owner.background import Background, Workers
from tests.until import PATIENCE_SECONDS, until


def taken(background: Background, call: Callable[[], object]) -> object:
    return until(lambda: background.take("key", call))


def test_an_answer_is_given_once_and_then_asked_for_anew() -> None:
    answers = iter([1, 2])
    background = Background(lambda: None)
    assert taken(background, lambda: next(answers)) == 1
    assert taken(background, lambda: next(answers)) == 2


def test_a_retryable_error_is_told_until_its_delay_is_over() -> None:
    asked = []

    def call() -> object:
        asked.append(time.monotonic())
        if len(asked) == 1:
            raise SourceUnavailable("away", retry_after=timedelta(milliseconds=300))
        return "here"

    background = Background(lambda: None)
    with pytest.raises(SourceUnavailable):
        taken(background, call)
    with pytest.raises(SourceUnavailable):
        background.take("key", call)

    def asked_again() -> bool:
        with suppress(SourceUnavailable):
            background.take("key", call)
        return len(asked) == 2

    until(asked_again)
    assert asked[1] - asked[0] >= 0.3


def test_a_call_about_something_else_is_waited_for_and_its_answer_is_nobodys() -> None:
    ends, running = threading.Event(), []

    def call(about: int) -> int:
        running.append(about)
        assert ends.wait(PATIENCE_SECONDS)
        return about

    background = Background(lambda: None)
    assert background.take("key", lambda: call(1), about=1) is None
    assert background.take("key", lambda: call(2), about=2) is None
    until(lambda: running)
    assert running == [1]
    ends.set()
    assert until(lambda: background.take("key", lambda: call(2), about=2)) == 2
    assert running == [1, 2]


def test_an_error_about_something_else_is_nobodys() -> None:
    def fail() -> object:
        raise SourceUnavailable("away")

    background = Background(lambda: None)
    assert background.take("key", fail, about=1) is None
    assert until(lambda: background.take("key", lambda: "here", about=2)) == "here"


def test_a_permanent_error_is_told_once() -> None:
    outcomes: list[object] = [SourceUnsupported("too old"), "granted"]

    def call() -> object:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    background = Background(lambda: None)
    with pytest.raises(SourceUnsupported):
        taken(background, call)
    assert taken(background, call) == "granted"


def test_what_nobody_foresaw_is_an_invariant_violated() -> None:
    background = Background(lambda: None)
    with pytest.raises(InvariantError, match="KeyError"):
        taken(background, lambda: dict[str, str]()["nothing"])


def test_workers_do_no_more_at_a_time_than_they_may_and_all_of_it_in_the_end() -> None:
    lock, working, most, done = threading.Lock(), [0], [0], threading.Semaphore(0)

    def call() -> None:
        with lock:
            working[0] += 1
            most[0] = max(most[0], working[0])
        with lock:
            working[0] -= 1
        done.release()

    workers = Workers("test", 3)
    for _ in range(50):
        workers.submit(call)
    assert all(done.acquire(timeout=PATIENCE_SECONDS) for _ in range(50))
    assert most[0] <= 3


def test_closed_workers_begin_nothing_more() -> None:
    begun, go = threading.Event(), threading.Event()
    late = threading.Event()

    def first() -> None:
        begun.set()
        go.wait(PATIENCE_SECONDS)

    workers = Workers("test", 1)
    workers.submit(first)
    assert begun.wait(PATIENCE_SECONDS)
    workers.submit(late.set)
    workers.close()
    workers.submit(late.set)
    go.set()
    assert not late.wait(0.1)
