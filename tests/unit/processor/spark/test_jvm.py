"""A job that gets no executor for too long makes its driver give up; a driver without jobs needs none.

What Spark's driver writes is one JSON line for each of its lines.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest
import structlog
from pyspark.accumulators import AccumulatorTCPServer, UpdateRequestHandler
from structlog.testing import capture_logs

from credentials import logging
from processor.spark import jvm
from processor.spark.jvm import ExecutorWatch, JvmLog
from tests.until import PATIENCE_SECONDS

_TICK = timedelta(milliseconds=1)


class Driver:
    """Counts the looks of its watch, each of which finds the next number of slots; the last one again and again."""

    def __init__(self, *slots: int) -> None:
        self._slots = list(slots)
        self.looks = 0
        self.gave_up = threading.Event()
        self.gave_up_after: list[int] = []
        self.looked_often = threading.Event()
        self.watch = ExecutorWatch(self._look, self._give_up, patience=3 * _TICK, look_every=_TICK)

    def _look(self) -> int:
        self.looks += 1
        if self.looks == 50:
            self.looked_often.set()
        return self._slots.pop(0) if len(self._slots) > 1 else self._slots[0]

    def _give_up(self) -> None:
        self.gave_up_after.append(self.looks)
        self.gave_up.set()


@pytest.mark.parametrize(("slots", "after"), [((0,), 3), ((2, 0, 0, 1, 0), 7)])
def test_it_gives_up_after_as_many_looks_without_a_slot_in_a_row(slots: tuple[int, ...], after: int) -> None:
    driver = Driver(*slots)
    with driver.watch.job():
        driver.watch.start()
        assert driver.gave_up.wait(PATIENCE_SECONDS)
        driver.watch.stop()
    assert driver.gave_up_after[0] == after


@pytest.mark.parametrize(("jobs", "slots"), [(0, 0), (1, 1)])
def test_neither_a_driver_without_jobs_nor_one_with_executors_gives_up(jobs: int, slots: int) -> None:
    driver = Driver(slots)
    with ExitStack() as running:
        for _ in range(jobs):
            running.enter_context(driver.watch.job())
        driver.watch.start()
        if jobs:
            assert driver.looked_often.wait(PATIENCE_SECONDS)
        else:
            assert not driver.gave_up.wait(0.2)
        driver.watch.stop()
    assert driver.gave_up_after == []


@pytest.fixture(autouse=True)
def logged() -> Iterator[None]:
    """A logger that has remembered how it writes here would do so in the tests of other modules."""
    logging.set_up(logging.LogFormat.JSON)
    structlog.configure(cache_logger_on_first_use=False)
    yield
    structlog.reset_defaults()


def told(line: str, capture: pytest.CaptureFixture[str]) -> dict[str, object]:
    jvm.tell(line)
    found: dict[str, object] = json.loads(capture.readouterr().err)
    found.pop("timestamp", None)
    return found


def test_text_of_java_is_a_line_of_the_node(capsys: pytest.CaptureFixture[str]) -> None:
    text = "WARNING: Using incubator modules: jdk.incubator.vector"
    assert told(text, capsys) == {"event": "spark_wrote", "level": "info", "text": text}


def test_a_line_of_spark_keeps_its_level_and_its_logger(capsys: pytest.CaptureFixture[str]) -> None:
    line = "26/11/23 04:10:00 WARN NativeCodeLoader: slow: very"
    assert told(line, capsys) == {
        "event": "spark_logged",
        "level": "warning",
        "text": "slow: very",
        "logger": "NativeCodeLoader",
    }


def test_a_line_of_a_worker_is_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    line = {"event": "row_deviated", "level": "warning", "row": "7"}
    assert told(json.dumps(line), capsys) == line


def test_a_line_of_a_worker_for_people_is_as_it_was_too(capsys: pytest.CaptureFixture[str]) -> None:
    line = "2026-11-28T21:32:20.709107Z [warning  ] row_deviated                   row=7"
    jvm.tell(line)
    assert capsys.readouterr().err == f"{line}\n"


@pytest.mark.parametrize("line", ["7", "[1]", "{", '{"a": 1}'])
def test_whatever_else_is_json_is_text(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(line, capsys)["text"] == line


def test_an_empty_line_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    jvm.tell("")
    assert capsys.readouterr().err == ""


def test_a_jvm_that_ends_in_the_middle_of_a_message_is_a_line_and_no_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    JvmLog().close()
    server = AccumulatorTCPServer(("127.0.0.1", 0), UpdateRequestHandler, "token")
    with socket.create_connection(("127.0.0.1", server.server_address[1])) as jvm_side:
        jvm_side.sendall(b"token")
    with capture_logs() as logs:
        server.handle_request()
    server.server_close()
    assert [each["event"] for each in logs] == ["spark_connection_lost"]
    assert "Traceback" not in capsys.readouterr().err
