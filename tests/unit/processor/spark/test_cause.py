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
_WORKER = """Error from python worker:
  Traceback (most recent call last):
    File "<frozen runpy>", line 198, in _run_module_as_main
    File "/opt/sluice/processor/spark/worker_daemon.py", line 12, in <module>
      import processor.copy.steps
  ModuleNotFoundError: No module named 'bson'
PYTHONPATH was:
  /opt/spark/python/lib/pyspark.zip:/opt/spark/python/lib/py4j-src.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number from processor.spark.worker_daemon's stdout."""
_NO_MODULE = """Error from python worker:
  /usr/bin/python3: Error while finding module specification for 'processor.spark.worker_daemon' (ModuleNotFoundError: No module named 'processor')
PYTHONPATH was:
  /opt/spark/python/lib/pyspark.zip"""
_RAISED = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 4327, in invoke_udf
    run_process()
changefeed.errors.PipelineUnavailable: Spark repeats a task
"""
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
        (
            f"{_CALL}{_LOST}org.apache.spark.SparkException: \n{_WORKER}{_STACK}",
            "a task on 10.0.0.2 executor driver failed: ModuleNotFoundError: No module named 'bson'",
        ),
        (
            f"{_CALL}{_LOST}org.apache.spark.SparkException: \n{_NO_MODULE}{_STACK}",
            f"a task on 10.0.0.2 executor driver failed: {_NO_MODULE.splitlines()[1].strip()}",
        ),
        (
            f"{_CALL}{_LOST}org.apache.spark.api.python.PythonException: {_RAISED}{_STACK}",
            "a task on 10.0.0.2 executor driver failed: PipelineUnavailable: Spark repeats a task",
        ),
        (
            f"{_CALL}: org.apache.spark.api.python.PythonException: {_RAISED}{_STACK}",
            "PipelineUnavailable: Spark repeats a task",
        ),
        ("Answer from Java side is empty", "RuntimeError: Answer from Java side is empty"),
        (f"{_CALL}", f"RuntimeError: {_CALL.strip()}"),
    ],
)
def test_the_cause_is_told_in_one_line(said: str, told: str) -> None:
    assert cause_of(RuntimeError(said)) == told
