"""Spark repeats the tasks of a lost executor, which may still be writing; and an executor may have another release of Sluice than its driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from pyspark import TaskContext

from changefeed.errors import PipelineUnavailable
from processor.spark import runner


@pytest.mark.parametrize(
    ("attempt", "release", "refusal"),
    [
        (0, runner._RELEASE, ""),
        (1, runner._RELEASE, "first attempt may still be running"),
        (0, "9.9.9", "and the node has 9.9.9; install the node's release there"),
    ],
)
def test_a_repeated_task_and_one_of_another_release_write_nothing(
    attempt: int, release: str, refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        TaskContext, "_taskContext", None
    )  # a context puts itself there, as Spark's worker has it, and has to leave
    TaskContext()._attemptNumber = attempt
    done: list[str] = []

    def read(item: str) -> Iterator[tuple[str, str]]:
        done.append(item)
        return iter([])

    ways: list[Callable[[], object]] = [
        lambda: list(runner._alone(release, partial(done.append, "ran"), [0])),
        lambda: list(runner._read(release, read, "ran")),
        lambda: list(runner._bucketed(release, lambda _: done.append("ran"), iter([]))),
    ]
    for way in ways:
        done.clear()
        if refusal:
            with pytest.raises(PipelineUnavailable, match=refusal):
                way()
        else:
            way()
        assert done == ([] if refusal else ["ran"])
