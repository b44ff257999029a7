"""`until`: waits for what must come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 180.0
"""Proves nothing: only a test that fails waits so long, or one beside busy neighbours."""


def until(
    condition: Callable[[], T],
    what: str = "the condition",
    told: Callable[[], object] = str,
    *,
    within: float = PATIENCE_SECONDS,
) -> T:
    """The first value that is true. `told`: what stood in the way when `condition` was called last.

    A condition may compare whole databases, and what it is about needs the machine, too: asking takes a fifth of the time at most.
    """
    began = asked = time.monotonic()
    while not (met := condition()):
        answered = time.monotonic()
        assert answered < began + within, f"{what} did not come true within {within:g} s. {told()}"
        time.sleep(min(max(0.02, 4 * (answered - asked)), 1.0))
        asked = time.monotonic()
    return met
