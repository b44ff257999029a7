"""Canonical Extended JSON from the bytes is the text of `bson.json_util`."""

from __future__ import annotations

import re
from json.encoder import encode_basestring
from typing import Any

import bson
import pytest
from bson import json_util
from bson.binary import Binary
from bson.code import Code
from bson.codec_options import DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp
from hypothesis import example, given
from hypothesis import strategies as st

from sluice_client.extended_json import COMPACT, RELAXED, SPACED, STRICT, DamagedBson, NoJson, first_value, to_json
from tests.unit.sink.messages.any_bson import OPTIONS, int64s, names, texts

_scope = st.dictionaries(names, st.integers(-5, 5), max_size=2)
_scalar = st.one_of(
    texts,
    st.none(),
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    int64s.map(Int64),
    st.floats(),
    st.binary(min_size=12, max_size=12).map(ObjectId),
    int64s.map(DatetimeMS),
    st.builds(
        Binary,
        st.binary(max_size=9),
        st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, 8, 128, 255]).filter(lambda kind: kind not in (3, 4)),
    ),
    st.builds(Binary, st.binary(min_size=16, max_size=16), st.sampled_from([3, 4])),
    st.builds(Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    st.decimals(allow_nan=True, places=3).map(lambda value: Decimal128(str(value)[:30])),
    st.just(MinKey()),
    st.just(MaxKey()),
    st.builds(Code, texts, st.one_of(st.none(), _scope)),
    st.builds(
        Regex,
        texts.filter(lambda text: "\0" not in text),
        st.sampled_from([0, re.IGNORECASE, re.MULTILINE | re.DOTALL, re.IGNORECASE | re.VERBOSE | re.UNICODE]),
    ),
)
_value = st.recursive(
    _scalar,
    lambda inner: st.one_of(st.lists(inner, max_size=12), st.dictionaries(names, inner, max_size=4)),
    max_leaves=20,
)
any_documents = st.dictionaries(names, _value, max_size=6)


def _by_json_util(document: bytes) -> str:
    return json_util.dumps(
        bson.decode(document, OPTIONS), json_options=json_util.CANONICAL_JSON_OPTIONS, ensure_ascii=False
    )


@given(any_documents)
@example({})
@example({"a": {}, "b": [], "c": [[{}], {"d": [1, 2]}]})
@example(
    {"number": -0.0, "large": 1e300, "small": 5e-324, "nan": float("nan"), "up": float("inf"), "down": float("-inf")}
)
@example({"": "", 'quote"': "\u2028\\\u0001é\U0001f600"})
def test_the_text_is_that_of_json_util(document: dict[str, Any]) -> None:
    raw = bson.encode(document, codec_options=OPTIONS)
    assert to_json(raw) == _by_json_util(raw)


@given(any_documents)
def test_the_text_gives_the_same_bytes_again(document: dict[str, Any]) -> None:
    raw = bson.encode(document, codec_options=OPTIONS)
    options = json_util.CANONICAL_JSON_OPTIONS.with_options(datetime_conversion=DatetimeConversion.DATETIME_MS)
    again = bson.encode(json_util.loads(to_json(raw), json_options=options), codec_options=OPTIONS)
    assert to_json(again) == to_json(raw)


_MOST, _MOST_OF_DEBEZIUM = 13, 16
"""How many bytes of JSON one byte of a document becomes at most, as the handbook says."""


@given(any_documents)
@example({"all": [{chr(name): Regex("", "") for name in range(1, 32)}] * 100})
@example({"\x01" * 100: "\x02" * 100, "é" * 100: "\U0001f600" * 100})
def test_a_text_is_as_large_as_the_handbook_says_at_most(document: dict[str, Any]) -> None:
    raw = bson.encode(document, codec_options=OPTIONS)
    assert len(to_json(raw).encode()) <= _MOST * len(raw)
    for dialect in (STRICT, COMPACT, SPACED, RELAXED):
        within = encode_basestring(to_json(raw, dialect)).encode()
        assert len(within) <= _MOST_OF_DEBEZIUM * len(raw)


def test_types_that_pymongo_does_not_keep_apart_are_written_by_the_specification() -> None:
    oid = bytes(range(12))
    elements = {
        b"\x06u\0": '"u": {"$undefined": true}',
        b"\x0es\0\x03\0\0\0ab\0": '"s": {"$symbol": "ab"}',
        b"\x0cp\0\x04\0\0\0a.b\0" + oid: f'"p": {{"$dbPointer": {{"$ref": "a.b", "$id": {{"$oid": "{oid.hex()}"}}}}}}',
    }
    for element, expected in elements.items():
        document = (len(element) + 5).to_bytes(4, "little") + element + b"\0"
        assert to_json(document) == f"{{{expected}}}"


def test_the_fields_of_a_reference_stay_in_their_order() -> None:
    raw = bson.encode({"r": {"$id": 1, "x": 2, "$ref": "c"}})
    assert to_json(raw) == '{"r": {"$id": {"$numberInt": "1"}, "x": {"$numberInt": "2"}, "$ref": "c"}}'


def test_text_that_is_not_utf8_is_refused() -> None:
    raw = bson.encode({"a": "xx"}).replace(b"xx", b"\xff\xfe")
    with pytest.raises(NoJson, match="not UTF-8"):
        to_json(raw)


@pytest.mark.parametrize("damage", [lambda raw: raw[:-1] + b"\1", lambda raw: raw.replace(b"\x10a", b"\x20a")])
def test_bytes_that_are_not_bson_are_refused(damage: Any) -> None:
    with pytest.raises(DamagedBson):
        to_json(damage(bson.encode({"a": 1})))


def _shows(value: Any, strict: str, relaxed: str, compact: str) -> None:
    raw = bson.encode({"a": value, "b": 1})
    assert [to_json(raw, dialect) for dialect in (STRICT, RELAXED, COMPACT)] == [
        f'{{"a": {strict},"b": 1}}',
        f'{{"a": {relaxed},"b": 1}}',
        f'{{"a": {compact},"b": {{"$numberInt": "1"}}}}',
    ]
    assert to_json(raw, SPACED).replace(", ", ",") == to_json(raw, RELAXED)


@pytest.mark.parametrize(
    ("value", "strict", "relaxed", "compact"),
    [
        (7, "7", "7", '{"$numberInt": "7"}'),
        (Int64(7), '{"$numberLong": "7"}', "7", '{"$numberLong": "7"}'),
        (1.5, "1.5", "1.5", '{"$numberDouble": "1.5"}'),
        (float("nan"), *['{"$numberDouble": "NaN"}'] * 3),
        (
            DatetimeMS(1500),
            '{"$date": 1500}',
            '{"$date": "1970-01-01T00:00:01.5Z"}',
            '{"$date": {"$numberLong": "1500"}}',
        ),
        (DatetimeMS(-1), '{"$date": -1}', *['{"$date": {"$numberLong": "-1"}}'] * 2),
        (
            Binary(b"\1\2", 0x80),
            '{"$binary": "AQI=","$type": "80"}',
            *['{"$binary": {"base64": "AQI=","subType": "80"}}'] * 2,
        ),
        (
            Regex("^a", "i"),
            '{"$regex": "^a","$options": "i"}',
            *['{"$regularExpression": {"pattern": "^a","options": "i"}}'] * 2,
        ),
        (Timestamp(3, 4), *['{"$timestamp": {"t": 3,"i": 4}}'] * 3),
        ([True, None], *["[true,null]"] * 3),
        (Decimal128("1.50"), *['{"$numberDecimal": "1.50"}'] * 3),
    ],
)
def test_the_dialects_of_the_driver_for_java(value: Any, strict: str, relaxed: str, compact: str) -> None:
    _shows(value, strict, relaxed, compact)


def test_a_relaxed_date_is_one_that_has_a_calendar() -> None:
    assert (
        to_json(bson.encode({"a": DatetimeMS(253_402_300_799_999)}), RELAXED)
        == '{"a": {"$date": "9999-12-31T23:59:59.999Z"}}'
    )
    assert "$numberLong" in to_json(bson.encode({"a": DatetimeMS(253_402_300_800_000)}), RELAXED)
    assert (
        to_json(bson.encode({"a": DatetimeMS(1_783_078_553_000)}), RELAXED)
        == '{"a": {"$date": "2026-07-03T11:35:53Z"}}'
    )


def test_the_value_of_a_document_with_one_field() -> None:
    assert first_value(bson.encode({"_id": "a: b"}), RELAXED) == '"a: b"'
    assert first_value(bson.encode({"_id": {"x": 1}}), STRICT) == '{"x": 1}'
