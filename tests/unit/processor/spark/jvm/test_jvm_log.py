"""What Spark's driver writes is one JSON line for each of its lines."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import structlog

from credentials import logging
from processor.spark.jvm import jvm_log


@pytest.fixture(autouse=True)
def logged() -> Iterator[None]:
    logging.set_up(logging.LogFormat.JSON)
    yield
    structlog.reset_defaults()


def told(line: str, capture: pytest.CaptureFixture[str]) -> dict[str, object]:
    jvm_log.tell(line)
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


@pytest.mark.parametrize("line", ["7", "[1]", "{", '{"a": 1}'])
def test_whatever_else_is_json_is_text(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(line, capsys)["text"] == line


def test_an_empty_line_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    jvm_log.tell("")
    assert capsys.readouterr().err == ""
