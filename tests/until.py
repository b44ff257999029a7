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
    """The first value that is true. `told`: what stood in the way when `condition` was called last."""
    deadline = time.monotonic() + within
    while not (met := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true within {within:g} s. {told()}"
        time.sleep(0.02)
    return met
