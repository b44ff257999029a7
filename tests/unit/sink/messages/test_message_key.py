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

from changefeed.cluster_time import ClusterTime
from changefeed.documents.row_key import row_key
from changefeed.position import Position
from sink.messages.extended_json import to_json
from sink.messages.message_key import key_json, keys_json, message_key, pos_of, position_of
from source.oplog.row_entry import place

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


_time = st.builds(ClusterTime, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
_near = st.builds(ClusterTime, st.just(1795224774), st.integers(8, 10))
_oplog = st.one_of(st.just(""), st.integers(0, 2**32 - 1).map(place), st.integers(0, 2).map(place))
_stream = st.one_of(
    st.just(""), st.sampled_from(["8264AB01", "8264AB0146", "8264AC", "8264AB0146FE04"]).map("{}00000000".format)
)


@pytest.mark.parametrize("tokens", [_oplog, _stream])
def test_bytes_sort_as_positions_do(tokens: st.SearchStrategy[str]) -> None:
    @given(st.lists(st.builds(Position, st.one_of(_time, _near), tokens), min_size=2))
    def check(positions: list[Position]) -> None:
        assert sorted(positions, key=lambda each: pos_of(each).encode()) == sorted(positions)

    check()


@given(st.builds(Position, _time, st.one_of(_oplog, _stream)))
def test_a_pos_gives_its_position_again(position: Position) -> None:
    assert position_of(pos_of(position)) == position


@given(st.builds(Position, _time, _oplog))
def test_with_the_oplog_all_have_one_width(position: Position) -> None:
    assert len(pos_of(position)) == 31


def test_the_layout_is_as_documented() -> None:
    assert pos_of(Position(ClusterTime(1795224774, 9), "00000002")) == "6B00F4C600000009.40000000000002"
    assert pos_of(Position(ClusterTime(1795224774, 9))) == "6B00F4C600000009.00000000000000"


@pytest.mark.parametrize(
    "text", ["", "6B00F4C600000009", "6b0114c600000009.00000000000000", "6B00F4C600000009.11000000000000"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a pos"):
        position_of(text)
