"""Match expressions answer as the server's `find` does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson.code import Code
from bson.decimal128 import Decimal128
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from bson.regex import Regex
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from changefeed.config.tables.match import MatchExpression, Values
from changefeed.documents.bson_order import compare, same_type
from tests.work import lines_run

NAN = float("nan")


def accepts(query: dict[str, Any], document: dict[str, Any]) -> bool:
    return MatchExpression.parse(query).accepts(document)


@pytest.mark.parametrize(
    ("query", "document", "expected"),
    [
        ({"level": "debug"}, {"level": "debug"}, True),
        ({"level": "debug"}, {"level": "Debug"}, False),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, False),
        ({"a": {"$eq": 1}}, {"a": 1.0}, True),
        ({"a": 1}, {"a": Decimal128("1.0")}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": "1"}, False),
        ({"a": {"b": 1}}, {"a": {"b": 1}}, True),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, False),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2, "b": 1}}, False),
        ({"a": {}}, {"a": {}}, True),
        # type bracketing
        ({"a": {"$gt": 5}}, {"a": 6}, True),
        ({"a": {"$gt": 5}}, {"a": "6"}, False),
        ({"a": {"$lt": 5}}, {"a": None}, False),
        ({"a": {"$lt": 5}}, {}, False),
        ({"a": {"$gte": "b"}}, {"a": "b"}, True),
        ({"a": {"$lte": {"x": 1}}}, {"a": {"x": 0}}, True),
        ({"a": {"$gt": False}}, {"a": True}, True),
        ({"a": {"$gt": 1, "$lt": 3}}, {"a": 2}, True),
        ({"a": {"$lt": {"$date": "2026-01-01T00:00:00Z"}}}, {"a": datetime(2025, 1, 1, tzinfo=UTC)}, True),
        ({"a": {"$lt": {"$date": "2026-01-01T00:00:00Z"}}}, {"a": 5}, False),
        ({"_id": {"$oid": "0" * 24}}, {"_id": ObjectId("0" * 24)}, True),
        # NaN
        ({"a": {"$numberDouble": "NaN"}}, {"a": NAN}, True),
        ({"a": {"$gte": {"$numberDouble": "NaN"}}}, {"a": NAN}, True),
        ({"a": {"$lt": 5}}, {"a": NAN}, False),
        ({"a": {"$gt": {"$numberDouble": "NaN"}}}, {"a": 5}, False),
        # null is also a missing field
        ({"a": None}, {}, True),
        ({"a": None}, {"a": None}, True),
        ({"a": None}, {"a": 0}, False),
        ({"a": {"$gte": None}}, {}, True),
        ({"a": {"$gt": None}}, {"a": None}, False),
        ({"a.b": None}, {"a": 5}, True),
        ({"a.b": None}, {"a": [1, 2]}, False),
        ({"a.b": None}, {"a": [{"c": 1}]}, True),
        ({"a": {"$in": [None, 1]}}, {}, True),
        # negations
        ({"a": {"$ne": 1}}, {}, True),
        ({"a": {"$ne": 1}}, {"a": [1, 2]}, False),
        ({"a": {"$nin": [1, 2]}}, {"a": 3}, True),
        ({"a": {"$nin": [1, 2]}}, {"a": [3, 2]}, False),
        ({"a": {"$not": {"$gt": 5}}}, {"a": "x"}, True),
        ({"a": {"$not": {"$gt": 5}}}, {"a": [1, 6]}, False),
        ({"$nor": [{"a": 1}, {"b": 1}]}, {"a": 2}, True),
        ({"$nor": [{"a": 1}, {"b": 1}]}, {"b": 1}, False),
        # logic
        ({"$or": [{"a": 1}, {"b": 1}]}, {"b": 1}, True),
        ({"$and": [{"a": 1}, {"b": 1}]}, {"b": 1}, False),
        ({"$or": [{"a": 1}, {"b": 1}], "c": 1}, {"b": 1}, False),
        # existence
        ({"a": {"$exists": True}}, {"a": None}, True),
        ({"a": {"$exists": True}}, {"a": []}, True),
        ({"a": {"$exists": False}}, {}, True),
        ({"a.b": {"$exists": False}}, {"a": [1, 2]}, True),
        ({"a.b": {"$exists": True}}, {"a": [{"c": 1}, {"b": 1}]}, True),
        # arrays
        ({"a": 1}, {"a": [1, 2]}, True),
        ({"a": [1, 2]}, {"a": [1, 2]}, True),
        ({"a": [1, 2]}, {"a": [[1, 2], 3]}, True),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, False),
        ({"a": {"$gt": 1, "$lt": 2}}, {"a": [0, 3]}, True),
        ({"a.b": 1}, {"a": [{"b": 0}, {"b": 1}]}, True),
        ({"a.b": 1}, {"a": [{"b": [0, 1]}]}, True),
        ({"a.b": 1}, {"a": [[{"b": 1}]]}, False),
        ({"a.0": 1}, {"a": [1, 2]}, True),
        ({"a.1": 1}, {"a": [1, 2]}, False),
        ({"a.0.b": 1}, {"a": [{"b": 1}]}, True),
        ({"a.0": 1}, {"a": [{"0": 1}]}, True),
        ({"a.0.b": 1}, {"a": [[{"b": 1}]]}, True),
        ({"a.0": 1}, {"a": {"0": 1}}, True),
        # lists
        ({"a": {"$in": [1, "x", {"b": 1}]}}, {"a": Decimal128("1.0")}, True),
        ({"a": {"$in": [1, "x", {"b": 1}]}}, {"a": {"b": 1.0}}, True),
        ({"a": {"$in": [1, True]}}, {"a": False}, False),
        ({"a": {"$in": [None]}}, {}, True),
        ({"a": {"$gt": 5}}, {"a": Decimal128("sNaN")}, False),
        # texts
        ({"a": {"$regex": "^de"}}, {"a": "debug"}, True),
        ({"a": {"$regex": "^DE", "$options": "i"}}, {"a": "debug"}, True),
        ({"a": {"$regex": "bug"}}, {"a": ["x", "debug"]}, True),
        ({"a": {"$regex": "5"}}, {"a": 5}, False),
        ({"a": {"$not": {"$regex": "^de"}}}, {"a": 5}, True),
        ({"a": {"$regex": "de"}}, {"a": Code("debug")}, False),
        ({"a": {"$regex": "de", "$options": "im"}}, {"a": Regex("de", "im")}, True),
        ({"a": {"$regex": "de"}}, {"a": Regex("debug")}, False),
    ],
)
def test_a_document_matches(query: dict[str, Any], document: dict[str, Any], expected: bool) -> None:
    assert accepts(query, document) is expected
    assert accepts(query, RawBSONDocument(bson.encode(document))) is expected  # type: ignore[arg-type] # any mapping


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", 0.5]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab0"), inner, max_size=2),
    max_leaves=5,
)
_DOCUMENTS = st.dictionaries(st.sampled_from("ab0"), _VALUES, max_size=3)
_PATHS = st.sampled_from(["a", "b", "a.b", "a.0", "a.b.0"])


@given(_DOCUMENTS, _PATHS, _VALUES, st.sampled_from([("$eq", "$ne"), ("$in", "$nin")]))
def test_a_negation_is_true_exactly_where_its_opposite_is_false(
    document: dict[str, Any], path: str, value: Any, operators: tuple[str, str]
) -> None:
    operand = [value] if operators[0] == "$in" else value
    plain, negated = ({path: {operator: operand}} for operator in operators)

    assert accepts(plain, document) is not accepts(negated, document)
    assert accepts({path: {"$not": {operators[0]: operand}}}, document) is accepts(negated, document)
    assert accepts({"$nor": [plain]}, document) is accepts(negated, document)


@given(_DOCUMENTS, _PATHS, _VALUES)
def test_equal_is_at_least_and_at_most_on_a_single_value(document: dict[str, Any], path: str, value: Any) -> None:
    if accepts({path: {"$eq": value}}, document):
        assert accepts({path: {"$gte": value}}, document)
        assert accepts({path: {"$lte": value}}, document)


@given(_DOCUMENTS)
def test_a_document_matches_each_of_its_own_fields(document: dict[str, Any]) -> None:
    assert all(accepts({name: {"$eq": value}}, document) for name, value in document.items())


@pytest.mark.parametrize(
    "written",
    [
        {"a": {"$gt": 5}, "b.c": "x"},
        {"$or": [{"a": {"$in": [1, None, True, 2.5]}}, {"b": {"$exists": False}}]},
        {"at": {"$lt": {"$date": "2026-01-01T00:00:00Z"}}},
        {"_id": {"$oid": "0" * 24}},
        {"name": {"$regex": "^x", "$options": "i", "$ne": "xy"}},
        {"price": {"$numberDecimal": "1.50"}},
    ],
)
def test_json_reads_as_the_user_wrote_it(written: dict[str, Any]) -> None:
    adapter = TypeAdapter(MatchExpression)
    expression = MatchExpression.parse(written)

    assert adapter.dump_python(expression, mode="json") == written
    assert adapter.validate_json(adapter.dump_json(expression)) == expression


@pytest.mark.parametrize(
    ("query", "key_only"),
    [
        ({"_id": 5}, True),
        ({"$or": [{"_id.a": 5}, {"_id": 6}]}, True),
        ({"_id": 5, "a": 1}, False),
        ({"_ids": 5}, False),
    ],
)
def test_an_expression_knows_whether_the_key_is_enough(query: dict[str, Any], key_only: bool) -> None:
    assert MatchExpression.parse(query).key_only is key_only


def test_a_long_list_costs_a_value_no_more_than_a_short_one() -> None:
    """By executed lines."""
    short, long = (MatchExpression.parse({"a": {"$in": [f"v{i}" for i in range(n)]}}) for n in (1, 10_000))
    assert lines_run(lambda: long.accepts({"a": "w"})) == lines_run(lambda: short.accepts({"a": "w"}))


@given(st.lists(_VALUES, min_size=1, max_size=3), _VALUES)
def test_a_list_contains_what_compares_as_equal_to_one_of_its_values(listed: list[Any], value: Any) -> None:
    expected = any(same_type(value, one) and compare(value, one) == 0 for one in listed)
    assert Values.of(listed).has(value) is expected
