"""BSON values of all types are ordered as MongoDB orders them."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from bson.binary import Binary
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from changefeed.documents.bson_order import MISSING, compare, is_nan, same_type

ASCENDING: list[Any] = [
    MinKey(),
    None,
    float("nan"),
    float("-inf"),
    -5,
    0,
    Decimal128("0.5"),
    1,
    1.5,
    2**53,
    2**53 + 1,
    float("inf"),
    "",
    "A",
    "a",
    "ab",
    "商",
    {},
    {"b": 1},  # a number sorts before a text whatever the names of the fields
    {"a": "x"},
    {"a": "x", "b": 1},
    [],
    [1],
    [1, 2],
    [2],
    ["a"],
    b"z",
    Binary(b"z", 5),
    b"aa",
    ObjectId("0" * 24),
    ObjectId("0" * 23 + "1"),
    False,
    True,
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 2, tzinfo=UTC),
    Timestamp(1, 1),
    Timestamp(1, 2),
    Regex("a"),
    MaxKey(),
]


@pytest.mark.parametrize(("lower", "higher"), list(pairwise(ASCENDING)))
def test_each_value_is_below_the_next(lower: Any, higher: Any) -> None:
    assert compare(lower, higher) < 0
    assert compare(higher, lower) > 0


_PLACES = st.integers(0, len(ASCENDING) - 1)


@given(_PLACES, _PLACES)
def test_the_order_is_total(left: int, right: int) -> None:
    order = compare(ASCENDING[left], ASCENDING[right])

    assert (order > 0) - (order < 0) == (left > right) - (left < right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 1.0),
        (1, Int64(1)),
        (1, Decimal128("1.00")),
        (float("nan"), Decimal128("NaN")),
        (None, MISSING),
        (b"a", Binary(b"a", 0)),
        (datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)),  # noqa: DTZ001 -- raw documents decode to naive datetimes
    ],
)
def test_one_value_in_two_forms_is_equal(left: Any, right: Any) -> None:
    assert compare(left, right) == 0
    assert same_type(left, right)


def test_true_is_not_a_number() -> None:
    assert not same_type(True, 1)
    assert not same_type("1", 1)


def test_only_nan_is_nan() -> None:
    assert is_nan(float("nan"))
    assert is_nan(Decimal128("NaN"))
    assert not is_nan(1)
    assert not is_nan("nan")
