"""Spark repeats the tasks of a lost executor, which may still be writing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from pyspark import TaskContext

from changefeed.errors import PipelineUnavailable
from processor.spark import runner


@pytest.mark.parametrize(("attempt", "ran"), [(0, ["ran"]), (1, [])])
def test_a_repeated_task_writes_nothing(attempt: int, ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    context = TaskContext()
    context._attemptNumber = attempt
    monkeypatch.setattr(TaskContext, "_taskContext", context)  # Spark's worker sets it so
    done: list[str] = []

    def read(item: str) -> Iterator[tuple[str, str]]:
        done.append(item)
        return iter([])

    ways: list[Callable[[], object]] = [
        lambda: list(runner._alone(partial(done.append, "ran"), [0])),
        lambda: list(runner._each(done.append, ["ran"])),
        lambda: list(runner._read(read, "ran")),
        lambda: list(runner._bucketed(lambda _: done.append("ran"), iter([]))),
    ]
    for way in ways:
        done.clear()
        if attempt:
            with pytest.raises(PipelineUnavailable, match="first attempt may still be running"):
                way()
        else:
            way()
        assert done == ran
