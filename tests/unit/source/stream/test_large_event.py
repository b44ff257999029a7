from __future__ import annotations

from typing import Any

import bson
import pytest

from source.stream.large_event import described


def test_a_diff_of_whole_fields_is_described_in_its_order() -> None:
    diff = {"d": {"gone": False, "too": False}, "u": {"b": 1, "a": {"x": 2}}, "i": {"new": [1], "an": None}}
    told = described(bson.encode(diff))
    assert told == bson.encode(
        {
            "updatedFields": {"b": 1, "a": {"x": 2}, "new": [1], "an": None},
            "removedFields": ["gone", "too"],
            "truncatedArrays": [],
        }
    )


@pytest.mark.parametrize(
    "diff",
    [
        {"u": {"a": 1}, "sb": {"i": {"c": 1}}},
        {"sa": {"a": True, "l": 2}},
        {"b": {"c": {"o": 1, "d": b""}}},
        {"u": {"a.b": 1}},
        {"i": {"7": 1}},
        {"i": {"$x": 1}},
        {"d": {"": False}},
    ],
)
def test_a_diff_that_paths_cannot_express_is_not_described(diff: dict[str, Any]) -> None:
    assert described(bson.encode(diff)) is None
