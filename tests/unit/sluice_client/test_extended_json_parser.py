"""What is read from canonical Extended JSON is the document that was written, and names of users stay names."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson.code import Code
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from hypothesis import example, given
from hypothesis import strategies as st

from sluice_client.extended_json import to_json
from sluice_client.extended_json_parser import DamagedJson, from_json
from tests.unit.sink.messages.any_bson import OPTIONS
from tests.unit.sluice_client.test_extended_json import any_documents

_NAMES = [
    *("$oid", "$date", "$numberInt", "$numberLong", "$numberDouble", "$numberDecimal", "$binary", "$code", "$scope"),
    *("$timestamp", "$regularExpression", "$symbol", "$undefined", "$minKey", "$maxKey", "$dbPointer", "$ref", "$id"),
    *("base64", "subType", "pattern", "options", "t", "i", "$regex", "$options", "$type", "$uuid", "$db", "a"),
]
_texts = st.sampled_from(["7", "-0", "07", "1.5", "nan", "inf", "NaN", "AQI=", "AQJ=", "00", "zz", "\0", "a" * 24])
_plain = st.one_of(_texts, st.booleans(), st.none(), st.sampled_from([1, 0, 1.0, Int64(1), 2**40]))
_literal = st.recursive(
    _plain, lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(_NAMES), inner))
)


@given(any_documents)
@example({"a": [Timestamp(3, 4), Code("f", {"x": 1})]})
def test_a_document_comes_back_byte_for_byte(document: dict[str, Any]) -> None:
    raw = bson.encode(document, codec_options=OPTIONS)
    text = to_json(raw)
    assert to_json(from_json(text)) == text
    assert "NaN" in text or from_json(text) == raw


@given(_literal)
def test_whatever_users_call_their_fields_the_text_stays_the_same(value: Any) -> None:
    text = to_json(bson.encode({"a": value}))
    assert to_json(from_json(text)) == text


@pytest.mark.parametrize(
    "literal",
    [
        {"$regex": "^.+@.+$"},
        {"$type": "string", "$regex": "^.+@.+$", "$ne": "x"},
        {"$regex": "a", "$options": "i"},
        {"$numberLong": 5},
        {"$numberLong": "5", "b": 1},
        {"$numberInt": "2147483648"},
        {"$numberInt": "05"},
        {"$numberDouble": "inf"},
        {"$numberDouble": "1.50"},
        {"$numberDecimal": "x"},
        {"$numberDecimal": "1e3"},
        {"$date": "x"},
        {"$date": "2026-11-29T12:00:00Z"},
        {"$date": [["$numberLong", "5"]]},
        {"$oid": "zz"},
        {"$oid": "65F0C0FFEE65F0C0FFEE65F0"},
        {"$uuid": "00000000-0000-0000-0000-000000000000"},
        {"$binary": "AQI=", "$type": "00"},
        {"$binary": {"base64": "AQJ=", "subType": "00"}},
        {"$binary": {"base64": "?", "subType": "00"}},
        {"$ref": "c", "$id": 7, "$db": "d"},
        {"$id": 1, "x": 2, "$ref": "c"},
        {"$minKey": 1},
        {"$minKey": True},
        {"$undefined": 1},
        {"$timestamp": {"t": 1, "i": 2}},
        {"$regularExpression": {"pattern": "\0", "options": ""}},
        {"$code": 1, "$scope": {}},
        {"$symbol": 1},
    ],
    ids=str,
)
def test_what_no_writer_of_values_writes_is_a_document(literal: dict[str, Any]) -> None:
    raw = bson.encode({"a": literal, "b": [literal]})
    assert from_json(to_json(raw)) == raw


_OID = bytes(range(12))


@pytest.mark.parametrize(
    "element",
    [
        b"\x06u\0",
        b"\x0es\0\x03\0\0\0ab\0",
        b"\x0cp\0\x04\0\0\0a.b\0" + _OID,
        b"\x10a\0\1\0\0\0\x10a\0\2\0\0\0",
        b"\x05o\0\x06\0\0\0\x02\x02\0\0\0xy",
        b"\xfflow\0\x7fhigh\0",
    ],
)
def test_what_pymongo_does_not_keep_apart_is_kept(element: bytes) -> None:
    raw = (len(element) + 5).to_bytes(4, "little") + element + b"\0"
    assert from_json(to_json(raw)) == raw


def test_the_one_document_that_looks_like_a_value_is_read_as_it() -> None:
    literal = {"$oid": _OID.hex()}
    assert RawBSONDocument(from_json(to_json(bson.encode({"a": literal}))))["a"] == bson.ObjectId(_OID)
    assert bson.decode(from_json(to_json(bson.encode(literal)))) == literal


@pytest.mark.parametrize("text", ['{"a": 7}', '{"a": [1.5]}', '{"a\\u0000b": null}'])
def test_what_is_not_canonical_is_refused(text: str) -> None:
    with pytest.raises(DamagedJson, match="expected"):
        from_json(text)
