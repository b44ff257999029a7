"""A document stays byte for byte what it was. Keys of text indexes are turned back into what a user wrote."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import bson
import pytest
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from changefeed.documents.document import EMPTY, RAW, Document, key_as_written, raw_document

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
_TAKEN = st.sampled_from(["$regex", "$options", "$oid", "$date", "$numberLong", "$ref", "$id", "$large", "$bson"])
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES | _TAKEN, inner, max_size=3)
)
DOCUMENTS = st.dictionaries(_NAMES, _VALUES, max_size=4)


def read_back(document: Document) -> Document:
    adapter = TypeAdapter(Document)
    return adapter.validate_json(adapter.dump_json(document))


@given(st.dictionaries(_NAMES | _TAKEN, _VALUES, max_size=4))
@example({"a": {"$regex": "^x", "$ne": "xy"}})
@example({"$literal": {"$oid": "x"}})
@example({"$bson": "AAAA"})
def test_etcd_gives_back_the_same_bytes(fields: dict[str, Any]) -> None:
    assert read_back(Document.of(fields)).raw == bson.encode(fields)


def test_etcd_gives_back_two_fields_of_one_name() -> None:
    doubled = Document(bytes.fromhex("13000000") + 2 * b"\x10a\0\1\0\0\0" + b"\0")

    assert read_back(doubled) == doubled


@pytest.mark.parametrize("damaged", ['{"a": {"$oid": "x"}}', '{"$bson": "AAA"}', "[]", '{"$date": 1}'])
def test_what_is_no_document_is_a_validation_error(damaged: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Document).validate_json(damaged)


def test_field_order_and_number_types_tell_documents_apart() -> None:
    assert Document.of({"a": 1, "b": 1}) != Document.of({"b": 1, "a": 1})
    assert Document.of({"a": 1}) != Document.of({"a": 1.0})
    assert Document.of({"a": 1}) != Document.of({"a": Int64(1)})


def test_it_reads_as_extended_json() -> None:
    assert str(Document.of({"n": Int64(5)})) == '{"n": {"$numberLong": "5"}}'
    assert EMPTY.decode() == {}


def test_the_fields_of_a_text_index_replace_the_servers_internal_key() -> None:
    kept = {"key": {"a": 1, "_fts": "text", "_ftsx": 1, "b": -1}, "weights": {"title": 10, "body": 1}}
    assert list(key_as_written(kept).items()) == [("a", 1), ("body", "text"), ("title", "text"), ("b", -1)]


def test_other_keys_stay_unchanged() -> None:
    assert key_as_written({"key": {"b": -1, "a": "2dsphere"}}) == {"b": -1, "a": "2dsphere"}


@given(DOCUMENTS)
def test_a_raw_document_is_the_driver_s_own(fields: dict[str, Any]) -> None:
    """It is made without the driver's constructor, by the names of its attributes."""
    raw = bson.encode(fields)
    found, expected = raw_document(raw), RawBSONDocument(raw, RAW)
    assert found == expected
    assert dict(found) == dict(expected)
    assert bson.encode({"documents": [found]}) == bson.encode({"documents": [expected]})


def test_a_text_that_is_no_utf8_is_shown_and_kept() -> None:
    """A bound between two chunks may have one."""
    document = Document(bson.encode({"_id": "caf?"}).replace(b"?", b"\xe9"))
    assert str(document) == '{"_id": "caf\\ufffd"}'
    assert document.written() == {"$bson": b64encode(document.raw).decode()}
