"""The differences of two documents, in words."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from verify.raw_document import describe


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ({"a": 1}, {"a": 2}, ["a is 1 at the source, 2 at the target"]),
        ({"a": 1}, {"a": 1.0}, ["a is 1 at the source, 1.0 at the target"]),
        (
            {"a": 1},
            {"a": bson.Int64(1)},
            ['a is {"$numberInt": "1"} at the source, {"$numberLong": "1"} at the target'],
        ),
        ({"a": {"b": 1}}, {"a": {}}, ["a.b is missing at the target"]),
        ({}, {"a": None}, ["a is at the target only"]),
        ({"a": [1, 2]}, {"a": [1]}, ["a has 2 elements at the source, 1 at the target"]),
        ({"a": [1, {"x": 1}]}, {"a": [1, {"x": 2}]}, ["a.1.x is 1 at the source, 2 at the target"]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, ["the fields are in another order"]),
        ({"o": {"a": 1, "b": 2}}, {"o": {"b": 2, "a": 1}}, ["the fields of o are in another order"]),
        ({"a": "x" * 100}, {"a": 1}, [f'a is "{"x" * 59}... at the source, 1 at the target']),
    ],
)
def test_what_differs_is_named_by_its_path(source: dict[str, Any], target: dict[str, Any], said: list[str]) -> None:
    assert list(describe(bson.encode(source), bson.encode(target))) == said


def test_only_the_first_few_are_named() -> None:
    source, target = ({str(number): value for number in range(100)} for value in (1, 2))
    assert len(describe(bson.encode(source), bson.encode(target))) == 5


def test_a_field_that_stands_twice_shows_in_the_bytes_only() -> None:
    twice = bson.encode({"a": 1})[:4] + bson.encode({"a": 1})[4:-1] * 2 + b"\0"
    twice = len(twice).to_bytes(4, "little") + twice[4:]
    assert describe(twice, bson.encode({"a": 1})) == ("the documents differ in their bytes only",)
