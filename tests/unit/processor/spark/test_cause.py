"""When Spark fails, a user reads the cause, not the method that PySpark called."""

from __future__ import annotations

import pytest

from processor.spark.cause import cause_of

_CALL = "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
_LOST = (
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 3 in stage 10.0 failed 1 times, "
    "most recent failure: Lost task 3.0 in stage 10.0 (TID 17) (10.0.0.2 executor driver): "
)
_ADVICE = "Consider setting 'spark.python.worker.faulthandler.enabled' configuration to 'true'."
_STACK = "\n\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)\nCaused by: java.io.EOFException"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            f"{_CALL}{_LOST}java.io.IOException: No space left on device{_STACK}",
            "a task on 10.0.0.2 executor driver failed: IOException: No space left on device",
        ),
        (
            f"{_CALL}{_LOST}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). {_ADVICE}{_STACK}",
            "a task on 10.0.0.2 executor driver failed: SparkException: Python worker exited unexpectedly (crashed).",
        ),
        (
            f"{_CALL}: org.apache.spark.SparkException: Job 7 cancelled because SparkContext was shut down{_STACK}",
            "SparkException: Job 7 cancelled because SparkContext was shut down",
        ),
        ("Answer from Java side is empty", "RuntimeError: Answer from Java side is empty"),
        (f"{_CALL}", f"RuntimeError: {_CALL.strip()}"),
    ],
)
def test_the_cause_is_told_in_one_line(said: str, told: str) -> None:
    assert cause_of(RuntimeError(said)) == told
