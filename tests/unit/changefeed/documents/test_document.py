"""A document stays byte for byte what it was."""

from __future__ import annotations

from typing import Any

import bson
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from changefeed.documents.document import EMPTY, Document

_NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
_SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.builds(Int64, st.integers(-(2**63), 2**63 - 1)),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.binary(max_size=8),
    st.builds(DatetimeMS, st.integers(-(2**62), 2**62)),
    st.builds(DatetimeMS, st.integers(-(10**6), 10**6)),
    st.builds(ObjectId, st.binary(min_size=12, max_size=12)),
    st.builds(Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-1000, max_value=1000).map(Decimal128),
)
_VALUES = st.recursive(_SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3))
# Extended JSON gives names that begin with $ a meaning of their own.
DOCUMENTS = st.dictionaries(_NAMES, _VALUES, max_size=4)


def _has_dollar(value: Any) -> bool:
    if isinstance(value, dict):
        return any(key.startswith("$") or _has_dollar(member) for key, member in value.items())
    return isinstance(value, list) and any(_has_dollar(member) for member in value)


@given(DOCUMENTS.filter(lambda fields: not _has_dollar(fields)))
def test_etcd_gives_back_the_same_bytes(fields: dict[str, Any]) -> None:
    adapter = TypeAdapter(Document)
    document = Document.of(fields)

    assert adapter.validate_json(adapter.dump_json(document)).raw == bson.encode(fields)


def test_field_order_and_number_types_tell_documents_apart() -> None:
    assert Document.of({"a": 1, "b": 1}) != Document.of({"b": 1, "a": 1})
    assert Document.of({"a": 1}) != Document.of({"a": 1.0})
    assert Document.of({"a": 1}) != Document.of({"a": Int64(1)})


def test_it_reads_as_extended_json() -> None:
    assert str(Document.of({"n": Int64(5)})) == '{"n": {"$numberLong": "5"}}'
    assert EMPTY.decode() == {}
