"""What a condition makes of a value is what the server makes of it."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from typing import Any

from bson.binary import Binary
from bson.code import Code
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from changefeed.config.tables.match import MatchExpression
from devstack.mongodb.server import Client
from processor.task.rows.gate import READABLE

_OPERANDS: list[Any] = [
    *(None, False, True, 0, 1, 2**53 + 1, Int64(2**63 - 1), 0.1, -0.0, 2.0**53, float("inf"), float("nan")),
    *map(Decimal128, ("0.1", "1.0", "0E+10", "NaN", "sNaN", "-Infinity", "9007199254740993", "1E+6144")),
    *("", "a", "1", "a\0b", b"a", Binary(b"a", 5), ObjectId("0" * 24), datetime(2026, 1, 1, tzinfo=UTC)),
    *(Timestamp(1, 1), {"b": 1}, {"b": Decimal128("1")}, [1], [], {"b": [None]}),
]
_VALUES: list[Any] = [
    *_OPERANDS,
    MinKey(),
    MaxKey(),
    Code("a"),
    Code("a", {"b": 1}),
    Regex("a", "i"),
    [[1]],
    [0.1, "a"],
]


def test_comparisons_decide_as_the_server(source_client: Client, database: str) -> None:
    rows = source_client[database]["values"]
    rows.insert_many([{"_id": number, "a": value} for number, value in enumerate(_VALUES)])
    rows.insert_one({"_id": -1})
    documents = list(rows.with_options(READABLE).find())
    lists = [_OPERANDS[begin : begin + 5] for begin in range(0, len(_OPERANDS), 5)]
    queries = [{operator: one} for operator, one in product(("$eq", "$ne", "$gt", "$gte", "$lt", "$lte"), _OPERANDS)]
    queries += [{operator: some} for operator, some in product(("$in", "$nin"), lists)]
    for query in queries:
        expected = {row["_id"] for row in rows.find({"a": query}, {"_id": 1})}
        expression = MatchExpression.parse({"a": query})
        assert {row["_id"] for row in documents if expression.accepts(row)} == expected, query
