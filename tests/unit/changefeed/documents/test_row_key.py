"""Row keys are equal exactly when the server treats two `_id`s as equal; a key in a message is short."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bson
import pytest
from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from changefeed.bson_bytes import STRING, MalformedBson, document_of, element, string
from changefeed.documents.document import LOSSLESS, encoded_text, raw_document
from changefeed.documents.row_key import canonical, id_alone, key_text, only_id, row_key


def _key(identity: Any, **shard_key: Any) -> bytes:
    return row_key(bson.encode({"_id": identity, **shard_key}))


@pytest.mark.parametrize(
    "same",
    [
        [1, 1.0, Int64(1), Decimal128("1"), Decimal128("1.000"), Decimal128("10E-1")],
        [0, -0.0, 0.0, Decimal128("-0"), Decimal128("0E+3")],
        [2**62, float(2**62), Int64(2**62), Decimal128(str(2**62))],
        [float("nan"), Decimal128("NaN"), Decimal128("-NaN")],
        [float("inf"), Decimal128("Infinity")],
        [0.5, Decimal128("0.50")],
        [-3, -3.0, Decimal128("-3")],
        [1e300, 1e300],
        [{"a": 1, "b": {"c": 2}}, {"a": 1.0, "b": {"c": Int64(2)}}],
    ],
)
def test_numbers_that_the_server_takes_for_equal_are_one_key(same: list[Any]) -> None:
    assert len({_key(identity) for identity in same}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, "1"),
        (1, True),
        (0, None),
        (0.1, Decimal128("0.1")),
        (2**53, 2**53 + 1),
        (float(2**63), 2**63 - 1),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 1}, {"a": [1]}),
        ({"a": "x"}, {"a": Binary(b"x")}),
        (Binary(b"x", 0), Binary(b"x", 4)),
        (DatetimeMS(1), Timestamp(0, 1)),
        (DatetimeMS(-(2**62)), DatetimeMS(2**62)),
        (float("nan"), float("inf")),
        (Decimal128("1E+6000"), Decimal128("1E+6001")),
        ({"a": "b\x00"}, {"a": "b"}),
    ],
)
def test_different_identities_are_different_keys(one: Any, other: Any) -> None:
    assert _key(one) != _key(other)


@pytest.mark.parametrize(
    "identity",
    ["text", "", ObjectId(), 5, 2.5, None, True, DatetimeMS(-1), Binary(b"0" * 16, 4), {"a": 1}, Timestamp(1, 2)],
)
def test_a_shard_key_beside_the_id_changes_nothing(identity: Any) -> None:
    beside = bson.encode({"region": "eu", "_id": identity})
    assert row_key(beside) == _key(identity) == _key(identity, region=3)
    assert only_id(bson.encode({"_id": identity}))
    assert not only_id(beside)
    assert not only_id(bson.encode({"_id": identity, "region": 3}))


@given(
    st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats()), st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats())
)
def test_keys_are_equal_exactly_when_numbers_are(one: float, other: float) -> None:
    equal = one == other or (one != one and other != other)  # noqa: PLR0124 - NaN is the one number that differs from itself
    assert (_key(one) == _key(other)) == equal


def test_a_short_key_is_shown_whole() -> None:
    assert key_text(bson.encode({"_id": 7, "region": "eu"})) == "{'_id': 7, 'region': 'eu'}"


def test_a_long_key_is_cut_and_its_size_is_shown() -> None:
    text = key_text(bson.encode({"_id": "k" * 9_000}))
    assert text.startswith("{'_id': 'kkk")
    assert text.endswith("kkk... (9015 bytes)")
    assert len(text) < 250


def test_text_that_is_not_utf_8_is_shown() -> None:
    assert key_text(bson.encode({"_id": "aa"}).replace(b"aa", b"\xff\xff")).startswith("{'_id': ")


def test_a_key_is_cut_out_wherever_it_stands_in_its_document() -> None:
    assert id_alone(bson.encode({"a": {"_id": 1}, "_id": {"b": [1]}, "c": 2})) == bson.encode({"_id": {"b": [1]}})
    with pytest.raises(MalformedBson):
        id_alone(bson.encode({"a": 1}))


_ODD = [b"\xe9", b"caf\xe9", b"caf\xe9s", b"\xc3\xa9", b"\xed\xb3\xa9", b"\xff"]


def _odd(fields: Mapping[str, Any], odd: bytes) -> bytes:
    """The question mark in the fields is that text."""
    wide = bson.encode(fields).replace(b"?" * len(odd), odd)
    assert odd in wide
    return wide


@pytest.mark.parametrize("odd", _ODD)
def test_a_text_that_is_not_utf_8_is_a_key_with_its_bytes(odd: bytes) -> None:
    text = "?" * len(odd)
    lone = _odd({"_id": text}, odd)
    assert (
        row_key(lone)
        == lone
        == row_key(_odd({"_id": text, "shard": 1}, odd))
        == row_key(_odd({"shard": 1, "_id": text}, odd))
    )
    assert id_alone(_odd({"shard": 1, "_id": text}, odd)) == lone
    assert only_id(_odd({"_id": {"a": text}}, odd))
    assert not only_id(_odd({"_id": {text: 1}, "shard": 1}, odd))


@pytest.mark.parametrize(
    "fields",
    [
        {"_id": {"a": "??", "n": 1}},
        {"_id": {"??": 1}},
        {"_id": {"a": ["??"]}},
        {"_id": {"a": {"b": Code("??")}}},
        {"_id": {"a": Code("??", {"b": 1})}},
        {"_id": {"a": Regex("??")}},
    ],
)
def test_different_texts_that_are_not_utf_8_are_different_keys(fields: dict[str, Any]) -> None:
    keys = {row_key(_odd(fields, odd)) for odd in (b"\xe9\xe9", b"\xe9\xe8", b"\xc3\xa9")}
    assert len(keys) == 3
    assert row_key(_odd(fields, b"\xe9\xe9")) in keys


def test_numbers_beside_a_text_that_is_not_utf_8_are_compared_by_value() -> None:
    assert len({row_key(_odd({"_id": {"a": "?", "n": n}}, b"\xe9")) for n in (2, 2.0, Int64(2))}) == 1


@given(st.binary(max_size=6))
def test_a_text_has_the_bytes_that_it_was_decoded_from(raw: bytes) -> None:
    document = document_of([element(STRING, b"_id", string(raw))])
    assert encoded_text(bson.decode(document, LOSSLESS)["_id"]) == raw
    assert encoded_text(raw_document(document)["_id"]) == raw
    assert canonical(bson.decode(document, LOSSLESS)["_id"])[-len(raw) - 2 :] == raw + b"\0\0"
