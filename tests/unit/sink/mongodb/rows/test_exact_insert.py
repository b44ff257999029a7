from __future__ import annotations

from typing import Any

import bson
import pytest
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from sink.mongodb.rows.statements.exact_insert import exact_insert, holds_zero_time

ZERO = Timestamp(0, 0)


@pytest.mark.parametrize(
    ("document", "holds"),
    [
        ({"_id": 1, "t": ZERO}, True),
        ({"_id": 1, "": ZERO}, True),
        ({"_id": 1, "a.b": ZERO}, True),
        ({"a": Int64(0), "b": b"\x11" + bytes(20), "t": ZERO}, True),
        ({"_id": ZERO}, False),
        ({"_id": 1, "n": {"t": ZERO}}, False),
        ({"_id": 1, "l": [ZERO]}, False),
        ({"_id": 1, "t": Timestamp(0, 1)}, False),
        ({"_id": 1, "t": Timestamp(1, 0)}, False),
        ({"_id": 1, "t": Int64(0), "x": 0.0, "y": "\x11"}, False),
        ({}, False),
    ],
)
def test_only_a_zero_timestamp_on_top_counts(document: dict[str, Any], holds: bool) -> None:
    assert holds_zero_time(bson.encode(document)) is holds


def test_text_that_is_not_utf_8_is_no_obstacle() -> None:
    document = bson.encode({"_id": 1, "s": "aaa", "t": ZERO}).replace(b"aaa", b"\xff\xff\xff")
    assert holds_zero_time(document)


_VALUES = st.one_of(
    st.just(ZERO), st.builds(Timestamp, st.integers(0, 1), st.integers(0, 1)), st.binary(), st.just(Int64(0)), st.none()
)


@given(st.dictionaries(st.text(st.characters(exclude_characters="\0", codec="utf-8")), _VALUES))
def test_it_is_found_among_whatever_bytes(document: dict[str, Any]) -> None:
    expected = any(value == ZERO and isinstance(value, Timestamp) and name != "_id" for name, value in document.items())
    assert holds_zero_time(bson.encode(document)) is expected


def test_it_always_inserts_the_very_bytes() -> None:
    raw = bson.encode({"_id": 1, "$x": {"$y": 1}, "t": ZERO})
    query, [stage] = exact_insert({"_id": 1, "k": 2}, raw, sharded=False)
    assert query == {"$nor": [{}]}
    literal = stage["$replaceWith"]["$literal"]
    assert isinstance(literal, RawBSONDocument)
    assert literal.raw == raw


def test_a_router_is_told_the_shard_key() -> None:
    query, _ = exact_insert({"_id": 1, "k": 2}, bson.encode({"_id": 1, "k": 2, "t": ZERO}), sharded=True)
    assert query == {"_id": 1, "k": 2, "$nor": [{}]}
