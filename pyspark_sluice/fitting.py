"""`fitted`: a document by a user's schema; what does not fit is null, and said.

    schema      total double, tags array<string>, paid timestamp
    document    {total: 7, tags: ["a", 1], paid: "yesterday"}
    fitted      {total: 7.0, tags: ["a", null], paid: null}, ["tags.1: expected string, found int", "paid: expected timestamp, found str"]

A number becomes another kind of number if nothing is lost but digits behind the point. Text is never read as a number, nor a number as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.errors import InvalidBSON
from bson.objectid import ObjectId
from bson.timestamp import Timestamp
from pyspark.sql import types as spark

_OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(
    dict, tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_MS
)
_REPLACED = _OPTIONS.with_options(unicode_decode_error_handler="replace")
_NO_UTF8 = "text that is not UTF-8: bytes that are no text are U+FFFD; after_bson is exact"
_WIDE = Context(prec=7_000)
"""More digits than any number of BSON has before and behind its point."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE: Mapping[type[spark.DataType], int] = {
    spark.ByteType: 8,
    spark.ShortType: 16,
    spark.IntegerType: 32,
    spark.LongType: 64,
}


class _Unfit(Exception):
    """The value has no place in the type."""


def fitted(raw: bytes, schema: spark.StructType) -> tuple[tuple[Any, ...] | None, list[str]]:
    errors: list[str] = []
    try:
        document = bson.decode(raw, _OPTIONS)
    except InvalidBSON:
        document = bson.decode(raw, _REPLACED)
        errors.append(_NO_UTF8)
    return _struct(document, schema, "", errors), errors


def _struct(value: Any, schema: spark.StructType, path: str, errors: list[str]) -> tuple[Any, ...]:
    if not isinstance(value, Mapping):
        raise _Unfit
    return tuple(_fit(value.get(field.name), field.dataType, f"{path}{field.name}", errors) for field in schema.fields)


def _fit(value: Any, wanted: spark.DataType, path: str, errors: list[str]) -> Any:
    if value is None:
        return None
    try:
        match wanted:
            case spark.StructType():
                return _struct(value, wanted, f"{path}.", errors)
            case spark.ArrayType():
                if not isinstance(value, list):
                    raise _Unfit
                return [_fit(each, wanted.elementType, f"{path}.{at}", errors) for at, each in enumerate(value)]
            case spark.MapType():
                if not isinstance(value, Mapping):
                    raise _Unfit
                return {name: _fit(each, wanted.valueType, f"{path}.{name}", errors) for name, each in value.items()}
        return _plain(value, wanted)
    except (_Unfit, ArithmeticError, ValueError):
        errors.append(f"{path}: expected {wanted.simpleString()}, found {type(value).__name__}")
        return None


def _plain(value: Any, wanted: spark.DataType) -> Any:
    if (bits := _WHOLE.get(type(wanted))) is not None:
        return _whole(value, bits)
    found = _READERS.get(type(wanted))
    if found is None:
        raise _Unfit
    return found(value, wanted)


def _whole(value: Any, bits: int) -> int:
    number = value.to_decimal() if isinstance(value, Decimal128) else value
    if isinstance(number, bool) or not isinstance(number, (int, float, Decimal)) or number != (whole := int(number)):
        raise _Unfit
    if not -(1 << bits - 1) <= whole < 1 << bits - 1:
        raise _Unfit
    return whole


def _real(value: Any, _: spark.DataType) -> float:
    if isinstance(value, Decimal128):
        return float(value.to_decimal())
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _Unfit
    return float(value)


def _decimal(value: Any, wanted: spark.DataType) -> Decimal:
    assert isinstance(wanted, spark.DecimalType)
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal128)):
        raise _Unfit
    number = value.to_decimal() if isinstance(value, Decimal128) else Decimal(str(value))
    if not number.is_finite():
        raise _Unfit
    scaled = number.quantize(Decimal((0, (1,), -wanted.scale)), context=_WIDE)
    if scaled.adjusted() + 1 > wanted.precision - wanted.scale:
        raise _Unfit
    return scaled


def _text(value: Any, _: spark.DataType) -> str:
    if isinstance(value, (str, ObjectId)):
        return str(value)
    raise _Unfit


def _truth(value: Any, _: spark.DataType) -> bool:
    if not isinstance(value, bool):
        raise _Unfit
    return value


def _moment(value: Any, _: spark.DataType) -> datetime:
    if isinstance(value, Timestamp):
        return value.as_datetime()
    if not isinstance(value, DatetimeMS):
        raise _Unfit
    return _EPOCH + timedelta(milliseconds=int(value))


def _day(value: Any, wanted: spark.DataType) -> date:
    return _moment(value, wanted).date()


def _bytes(value: Any, _: spark.DataType) -> bytes:
    if not isinstance(value, bytes):
        raise _Unfit
    return bytes(value)


_READERS: Mapping[type[spark.DataType], Callable[[Any, spark.DataType], Any]] = {
    spark.DoubleType: _real,
    spark.FloatType: _real,
    spark.DecimalType: _decimal,
    spark.StringType: _text,
    spark.BooleanType: _truth,
    spark.TimestampType: _moment,
    spark.DateType: _day,
    spark.BinaryType: _bytes,
}
