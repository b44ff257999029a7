"""YAML without its surprises."""

from __future__ import annotations

import pytest

from changefeed.config import yaml_text
from changefeed.errors import ConfigurationError

HINT = "indent with spaces, and put a text that begins with * or ! in quotes"


def problem_of(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        yaml_text.read(text)
    (problem,) = caught.value.problems
    return problem


def test_start_and_target_are_texts_and_other_numbers_are_numbers() -> None:
    read = yaml_text.read("start: 1795224774.10\ntarget: 2026-11-21T00:00:00Z\nn: 1.50\ni: 7\n")

    assert read == {"start": "1795224774.10", "target": "2026-11-21T00:00:00Z", "n": 1.5, "i": 7}


def test_null_stays_null() -> None:
    assert yaml_text.read("target: null\nstart:\n") == {"target": None, "start": None}


def test_only_true_and_false_are_booleans() -> None:
    assert yaml_text.read("a: [true, false, yes, no, on, off]") == {"a": [True, False, "yes", "no", "on", "off"]}


def test_dates_are_texts() -> None:
    assert yaml_text.read("a: 2026-01-01") == {"a": "2026-01-01"}


def test_anchors_are_followed() -> None:
    assert yaml_text.read("a: &x [shop.audit]\nb: *x") == {"a": ["shop.audit"], "b": ["shop.audit"]}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id: x\nid: y\n", "line 2, column 1: found the key 'id' twice; write each key once"),
        ("a:\n  b: 1\n  b: 2\n", "line 3, column 3: found the key 'b' twice; write each key once"),
        ("a: {[b]: 1}\n", "line 1, column 5: found a key that is no text; write key: value"),
        ("id: x\n\troutes: []\n", "line 2, column 1: found text that is no YAML: found character '\\t' that cannot start any token; " + HINT),
        ("id: x\nroutes: [a\n", "line 3, column 1: found text that is no YAML: expected ',' or ']', but got '<stream end>'; " + HINT),
        ("tables: [!shop.tmp_*]\n", "line 2, column 1: found text that is no YAML: expected ',' or ']', but got '<stream end>'; " + HINT),
        ("tables:\n- !shop.tmp_*\n", "line 2, column 3: found text that is no YAML: could not determine a constructor for the tag '!shop.tmp_*'; " + HINT),
        ("tables:\n- *.*\n", "line 2, column 4: found text that is no YAML: expected alphabetic or numeric character, but found '.'; " + HINT),
        ("a: 1\n---\nb: 2\n", "line 2, column 1: found text that is no YAML: but found another document; " + HINT),
        ("id: \x07\n", "the configuration: found text that is no YAML: unacceptable character #x0007: special characters are not allowed; " + HINT),
        ("- id: x\n", "the configuration: found no mapping; write keys and values, beginning with id:"),
        ("", "the configuration: found no mapping; write keys and values, beginning with id:"),
    ],
)  # fmt: skip
def test_a_mistake_shows_its_line(text: str, problem: str) -> None:
    assert problem_of(text) == problem


def test_a_message_does_not_repeat_the_line_which_may_hold_a_password() -> None:
    assert "hunter2" not in problem_of("source: mongodb://reader:hunter2@db1\n  sink: : [\n")
