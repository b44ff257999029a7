from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Binary, Code, DBRef, Decimal128, MaxKey, MinKey, ObjectId, Regex, Timestamp
from hypothesis import given
from hypothesis import strategies as st

from changefeed.bson_bytes import MalformedBson, document_of, documents_of, elements

EVERY_TYPE: dict[str, Any] = {
    "double": 1.5,
    "string": "a\0b",
    "document": {"a": 1},
    "array": [1, [2]],
    "binary": Binary(b"\0\1", 2),
    "id": ObjectId(),
    "bool": True,
    "date": datetime(1969, 1, 1, tzinfo=UTC),
    "null": None,
    "regex": Regex("^a", re.IGNORECASE | re.MULTILINE),
    "reference": DBRef("c", 1),
    "code": Code("f()"),
    "scoped": Code("f()", {"a": "b"}),
    "int32": 1,
    "timestamp": Timestamp(1, 2),
    "int64": bson.Int64(1),
    "decimal": Decimal128("1.0"),
    "min": MinKey(),
    "max": MaxKey(),
    "empty": {},
}


def test_elements_of_every_type_are_measured_right() -> None:
    raw = bson.encode(EVERY_TYPE)
    alone = {name: document_of([raw[at - len(name) - 2 : end]]) for name, _, at, end in elements(raw)}
    assert alone == {name.encode(): bson.encode({name: value}) for name, value in EVERY_TYPE.items()}


def test_a_pointer_and_undefined_which_only_old_programs_wrote_are_measured_right() -> None:
    pointer = b"\x0cp\x00" + (4).to_bytes(4, "little") + b"a.b\x00" + b"i" * 12
    raw = document_of([pointer, b"\x06u\x00", b"\x10n\x00" + bytes(4)])
    assert [(name, end - at) for name, _, at, end in elements(raw)] == [(b"p", 20), (b"u", 0), (b"n", 4)]


@given(st.lists(st.integers(0, 100), max_size=120))
def test_an_array_is_cut_into_its_documents(numbers: list[int]) -> None:
    documents = [{"n": "x" * number} for number in numbers]
    raw = bson.encode({"batch": documents})
    [(_, _, at, end)] = elements(raw)
    assert documents_of(raw, at, end) == [bson.encode(document) for document in documents]


def test_a_long_array_is_cut_across_each_change_of_key_width() -> None:
    raw = bson.encode({"batch": [{"n": number} for number in range(1001)]})
    [(_, _, at, end)] = elements(raw)
    assert [bson.decode(document)["n"] for document in documents_of(raw, at, end)] == list(range(1001))


@pytest.mark.parametrize("body", [b"\x20a\x00", b"\x02a\x00\x09\x00\x00\x00a\x00"])
def test_what_is_not_bson_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedBson):
        list(elements(document_of([body])))
