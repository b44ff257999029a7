"""When the owner counts the rows that a target refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from changefeed.errors import SinkUnavailable
from changefeed.records.status import LetterTotals
from owner.background import Background
from owner.deployments.letter_count import LetterCount

NONE, THREE = LetterTotals(), LetterTotals(count=3, bytes=700)


class AtOnce:
    """A `Background` whose calls are answered before they return."""

    def take(self, key: object, call: Callable[[], Any]) -> Any:
        return call()


class Target:
    def __init__(self) -> None:
        self.letters, self.asked, self.down, self.now = NONE, 0, False, 0.0
        self.count = LetterCount("f", cast("Background", AtOnce()), self._open, monotonic=lambda: self.now)

    def _open(self, before: LetterTotals) -> LetterTotals:
        self.asked += 1
        if self.down:
            raise SinkUnavailable("away")
        return self.letters

    def look(self, rejected: int = 0) -> LetterTotals | None:
        self.now += 6
        return self.count.look(NONE, rejected)


@pytest.fixture
def target() -> Target:
    return Target()


def test_a_changefeed_without_letters_asks_the_target_once(target: Target) -> None:
    assert [target.look() for _ in range(5)] == [NONE] * 5
    assert target.asked == 1


def test_a_refusal_is_counted_and_open_letters_are_until_they_are_gone(target: Target) -> None:
    target.look()
    target.letters = THREE
    assert target.look(rejected=3) == target.look(rejected=3) == THREE
    target.letters = NONE
    assert [target.look(rejected=3) for _ in range(3)] == [NONE] * 3
    assert target.asked == 4


def test_a_target_that_does_not_answer_leaves_what_was_known(target: Target) -> None:
    target.letters = THREE
    target.look()
    target.down = True
    assert target.look() == THREE
    target.down, target.letters = False, NONE
    assert target.look() == NONE


def test_the_count_is_not_known_before_the_first_answer(target: Target) -> None:
    target.down = True
    assert target.look() is None
