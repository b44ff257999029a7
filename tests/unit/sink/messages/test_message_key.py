from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import ObjectId
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from hypothesis import given
from hypothesis import strategies as st

from changefeed.documents.row_key import id_alone, row_key
from sink.messages.message_key import key_json, keys_json, message_key
from sluice_client.extended_json import to_json
from tests.unit.sink.messages.changes import no_utf8

_NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.decimals(allow_nan=False, places=3, min_value=-(10**9), max_value=10**9).map(lambda it: Decimal128(str(it))),
    st.sampled_from([0, -0.0, 7, 7.0, Int64(7), Decimal128("7.00"), 0.5, Decimal128("0.50"), 1e300, 5e-324]),
)
_VALUES = st.one_of(
    _NUMBERS,
    st.booleans(),
    st.none(),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(min_size=12, max_size=12).map(ObjectId),
    st.dictionaries(st.sampled_from("ab"), _NUMBERS, max_size=2),
)


def _raw(identity: Any, **shard_key: Any) -> bytes:
    return bson.encode({"_id": identity, **shard_key})


@given(_VALUES, _VALUES)
def test_keys_are_equal_when_the_server_takes_the_ids_for_equal(one: Any, other: Any) -> None:
    same = row_key(_raw(one)) == row_key(_raw(other))
    assert (message_key(_raw(one)) == message_key(_raw(other))) is same


@given(_VALUES)
def test_the_fields_of_a_shard_key_are_left_out(identity: Any) -> None:
    assert message_key(_raw(identity, region="eu")) == message_key(_raw(identity))


@pytest.mark.parametrize(
    ("identity", "key"),
    [
        (7, Int64(7)),
        (7.0, Int64(7)),
        (Decimal128("7.0"), Int64(7)),
        (0.5, Decimal128("0.5")),
        ("a", "a"),
        ({"a": 1.0, "b": [2]}, {"a": Int64(1), "b": [Int64(2)]}),
    ],
)
def test_a_key_is_the_id_with_numbers_in_one_form(identity: Any, key: Any) -> None:
    found = bson.decode(message_key(_raw(identity)))["_id"]
    assert (found, type(found)) == (key, type(key))


def test_the_key_of_a_document_is_found_among_texts_that_are_no_utf8() -> None:
    document = no_utf8({"text": "??", "_id": Int64(7), "more": "??"})
    assert id_alone(document) == bson.encode({"_id": Int64(7)})


_IDS: list[Any] = [
    ObjectId("0123456789abcdef01234567"),
    *(0, 7, -1, 2**31 - 1, -(2**31)),
    *(Int64(7), Int64(2**63 - 1), Int64(-(2**63))),
    *(7.0, 0.5, float("nan"), Decimal128("7.00"), "text", "", b"bytes", None, True),
    *({"a": 7}, {"_id": Int64(7)}, {}, datetime(2026, 1, 1, tzinfo=UTC)),
]


@pytest.mark.parametrize("id_", _IDS, ids=repr)
@pytest.mark.parametrize("beside", [{}, {"region": "eu"}, {"n": None}])
def test_a_key_is_written_as_any_document(id_: Any, beside: dict[str, Any]) -> None:
    for key in (bson.encode({"_id": id_, **beside}), bson.encode({**beside, "_id": id_})):
        assert key_json(key) == to_json(key)
        assert keys_json(key) == (to_json(key), to_json(message_key(key)))


def test_a_key_keeps_a_text_that_is_no_utf8() -> None:
    raw, keyed = (_raw({"a": "caf?", "n": number}).replace(b"?", b"\xe9") for number in (2, Int64(2)))
    assert message_key(raw) == message_key(keyed) == keyed
