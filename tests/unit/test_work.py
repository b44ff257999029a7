"""That a count of executed lines is one of the call alone."""

from __future__ import annotations

import gc

from tests.work import lines_run


def test_what_the_collector_runs_in_between_is_not_counted() -> None:
    collected: list[str] = []

    def heard(phase: str, _: object) -> None:
        collected.append(phase)

    gc.callbacks.append(heard)
    try:
        few, many = (lines_run(lambda: [[] for _ in range(100)]), lines_run(lambda: [[] for _ in [0] * 100_000]))
        held: list[object] = [[] for _ in range(100_000)]
    finally:
        gc.callbacks.remove(heard)
    assert held
    assert collected, "expected the collector to run where it may"
    assert many - few == 99_900
