"""What jobs see of a JVM that dies between two questions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext

from changefeed.errors import PipelineUnavailable
from processor.spark.runner import Group, SparkRunner
from processor.spark.settings import SparkSettings


class _Dying:
    """A context whose JVM was alive when it was asked last."""

    def __getattr__(self, name: str) -> Any:
        raise Py4JError("An error occurred while calling None.None")


class _DiesMeanwhile(SparkRunner):
    def _started(self) -> SparkContext:
        return cast("SparkContext", _Dying())


@pytest.mark.parametrize(
    "ask",
    [
        lambda runner: runner.switchboard(),
        lambda runner: runner.divides(),
        lambda runner: runner.run_one(Group("feed", "lane"), int),
        lambda runner: runner.broadcast("context"),
    ],
    ids=["switchboard", "divides", "run_one", "broadcast"],
)
def test_a_jvm_that_dies_in_between_is_tried_again_and_fails_nothing(ask: Any) -> None:
    runner = _DiesMeanwhile(SparkSettings(master="local[2]"))
    with pytest.raises(PipelineUnavailable, match="calling None"):
        ask(runner)


def test_a_context_that_another_thread_has_buried_has_no_slots_and_nothing_to_cancel() -> None:
    """PySpark forgets what the context was then."""
    runner = SparkRunner(SparkSettings(master="local[2]"))
    runner._context = cast("SparkContext", SimpleNamespace(_jsc=None, _jvm=None, _gateway=None))
    assert runner.slots() == 0
    assert runner.health() is None
    runner.cancel(Group("feed", "lane"))
    runner._context = None
