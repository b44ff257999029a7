"""`cause_of`: extracts the cause of a Spark error from PySpark's text. Pure.

PySpark's text of a JVM error begins with the name of the called method, which does not help users, and ends with the JVM's stack:

    An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
    : org.apache.spark.SparkException: Job aborted due to stage failure: Task 3 in stage 10.0 failed 1 times, most recent failure: Lost task 3.0
      in stage 10.0 (TID 17) (10.0.0.2 executor driver): java.io.IOException: No space left on device
        at java.base/java.io.FileOutputStream.writeBytes(Native Method)

If Python failed in an executor, the reason is the last line of a traceback before that stack.
"""

from __future__ import annotations

import re
from itertools import dropwhile
from textwrap import dedent

_LOST_TASK = re.compile(
    r"most recent failure: Lost task \S+ in stage \S+ \(TID \d+\) \((?P<where>.*?)\): (?P<cause>.*)", re.DOTALL
)
_STACK = "\n\tat "
_TRACEBACK = "Traceback (most recent call last):\n"
_DAEMON = re.compile(r"Error from python worker:\n(?P<said>.*?)\nPYTHONPATH was:", re.DOTALL)
_ADVICE = re.compile(r"\s*Consider setting .*")
_PACKAGE = re.compile(r"^(?:[a-z][\w$]*\.)+(?=[A-Z])")


def cause_of(error: Exception) -> str:
    """One line."""
    first, _, rest = str(error).strip().partition("\n")
    if not rest or not first.startswith("An error occurred while calling "):
        return f"{type(error).__name__}: {first}"
    text = rest.partition(_STACK)[0].removeprefix(": ")
    if lost := _LOST_TASK.search(text):
        return f"a task on {lost['where']} failed: {_short(lost['cause'])}"
    return _short(text)


def _short(text: str) -> str:
    return _ADVICE.sub("", _PACKAGE.sub("", _reason(text)))


def _reason(text: str) -> str:
    if daemon := _DAEMON.search(text):
        text = dedent(daemon["said"])
    _, traceback, lines = text.rpartition(_TRACEBACK)
    after_frames = dropwhile(lambda line: line.startswith(" "), lines.splitlines()) if traceback else []
    return next(iter(after_frames), text.strip().partition("\n")[0]).strip()
