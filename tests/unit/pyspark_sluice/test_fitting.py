from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import bson
import pytest
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from pyspark.sql import types as spark

from pyspark_sluice.fitting import fitted

_ID = ObjectId("0123456789abcdef01234567")
_NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "type", "found"),
    [
        (7, spark.DoubleType(), 7.0),
        (7.0, spark.IntegerType(), 7),
        (Decimal128("7.00"), spark.LongType(), 7),
        (Int64(2**40), spark.LongType(), 2**40),
        (Decimal128("1.235"), spark.DecimalType(5, 2), Decimal("1.24")),
        (12345678901.5, spark.DecimalType(38, 18), Decimal("12345678901.500000000000000000")),
        (
            Decimal128("1234567890123456789012345678901.235"),
            spark.DecimalType(38, 2),
            Decimal("1234567890123456789012345678901.24"),
        ),
        (Decimal128("0E+6000"), spark.DecimalType(18, 18), Decimal("0E-18")),
        (_ID, spark.StringType(), str(_ID)),
        (_NOON, spark.TimestampType(), _NOON),
        (_NOON, spark.DateType(), date(2026, 11, 29)),
        (b"\1", spark.BinaryType(), b"\1"),
        (True, spark.BooleanType(), True),
        (None, spark.LongType(), None),
        ({"a": 1}, spark.MapType(spark.StringType(), spark.LongType()), {"a": 1}),
    ],
)
def test_a_value_that_fits(value: Any, type: spark.DataType, found: Any) -> None:
    schema = spark.StructType([spark.StructField("x", type)])
    assert fitted(bson.encode({"x": value}), schema) == ((found,), [])


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (2**40, spark.IntegerType()),
        (7.5, spark.LongType()),
        (float("nan"), spark.LongType()),
        (float("inf"), spark.LongType()),
        (Decimal128("NaN"), spark.DecimalType(5, 2)),
        (Decimal128("1000"), spark.DecimalType(5, 2)),
        (Decimal128("9E+6144"), spark.DecimalType(38, 37)),
        ("7", spark.LongType()),
        (7, spark.StringType()),
        (1, spark.BooleanType()),
        ("yesterday", spark.TimestampType()),
        (bson.datetime_ms.DatetimeMS(2**60), spark.TimestampType()),
        ([1], spark.StructType([])),
        ({}, spark.ArrayType(spark.LongType())),
        (1, spark.MapType(spark.StringType(), spark.LongType())),
        (1, spark.VariantType()),
    ],
)
def test_a_value_that_does_not_fit_is_null_and_said(value: Any, type: spark.DataType) -> None:
    schema = spark.StructType([spark.StructField("x", type)])
    document, [error] = fitted(bson.encode({"x": value}), schema)
    assert document == (None,)
    assert error.startswith(f"x: expected {type.simpleString()}, found ")


def test_text_that_is_no_utf8_is_shown_with_replacements_and_said() -> None:
    schema = spark.StructType([spark.StructField("a", spark.StringType()), spark.StructField("b", spark.LongType())])
    raw = bson.encode({"a": "x~", "b": 7}).replace(b"~", b"\xff")
    assert fitted(raw, schema) == (
        ("x\ufffd", 7),
        ["text that is not UTF-8: bytes that are no text are U+FFFD; after_bson is exact"],
    )


def test_what_fits_around_it_stays() -> None:
    schema = spark.StructType(
        [
            spark.StructField("tags", spark.ArrayType(spark.StringType())),
            spark.StructField("at", spark.StructType([spark.StructField("city", spark.StringType())])),
        ]
    )
    document, errors = fitted(bson.encode({"tags": ["a", 1], "at": {"city": 2, "more": 3}}), schema)
    assert document == (["a", None], (None,))
    assert errors == ["tags.1: expected string, found int", "at.city: expected string, found int"]
