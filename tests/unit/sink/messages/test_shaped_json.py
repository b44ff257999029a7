"""A document written by its shape has the text that it has without."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64
from bson.objectid import ObjectId
from hypothesis import given
from hypothesis import strategies as st

from sink.messages import shaped_json
from sink.messages.shaped_json import ShapedJson
from sluice_client.extended_json import CANONICAL, COMPACT, RELAXED, SPACED, STRICT, DamagedBson, NoJson, to_json
from tests.unit.sink.messages.any_bson import OPTIONS, int64s, names, texts

_DIALECTS = [CANONICAL, COMPACT, RELAXED, SPACED, STRICT]

_small = st.dictionaries(names, st.one_of(texts, st.none(), st.integers(-5, 5)), max_size=3)
_TYPES: list[st.SearchStrategy[Any]] = [
    texts,
    st.none(),
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    int64s.map(Int64),
    st.floats(),
    st.binary(min_size=12, max_size=12).map(ObjectId),
    int64s.map(DatetimeMS),
    _small,
    st.lists(st.one_of(_small, st.floats()), max_size=3),
]
_shapes = st.dictionaries(names, st.sampled_from(_TYPES), max_size=8)


@st.composite
def _alike(draw: st.DrawFn) -> list[bytes]:
    """Documents of two shapes, mostly one after another."""
    documents = []
    for shape in (draw(_shapes), draw(_shapes)):
        documents += draw(st.lists(st.fixed_dictionaries(shape), max_size=4))
    return [bson.encode(each, codec_options=OPTIONS) for each in documents]


@given(_alike(), st.sampled_from(_DIALECTS))
def test_the_text_is_that_of_to_json(documents: list[bytes], dialect: Any) -> None:
    shaped = ShapedJson(dialect)
    for _ in range(2):
        assert [shaped.text(each) for each in documents] == [to_json(each, dialect) for each in documents]


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    written: list[bytes] = []

    def counting(document: bytes, dialect: Any) -> str:
        written.append(document)
        return to_json(document, dialect)

    monkeypatch.setattr(shaped_json, "to_json", counting)
    return written


def test_documents_that_are_alike_are_written_by_their_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    written, shaped = _counted(monkeypatch), ShapedJson()
    for number in range(20):
        shaped.text(bson.encode({"_id": number, "of": {"any": "size" * number}, "s": "x" * number, "t": 1.5}))
    assert len(written) == 1


def test_documents_that_are_never_alike_are_not_looked_at_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    _counted(monkeypatch)
    looked_at: list[bytes] = []
    fields_of = shaped_json._fields_of

    def looking(document: bytes) -> Any:
        looked_at.append(document)
        return fields_of(document)

    monkeypatch.setattr(shaped_json, "_fields_of", looking)
    shaped = ShapedJson()
    for number in range(5_000):
        shaped.text(bson.encode({f"f{number}": number}))
    assert len(looked_at) < 100
    for _ in range(10_000):
        shaped.text(bson.encode({"seldom": Binary(b"x")}))
    assert len(looked_at) < 200


def test_text_that_is_not_utf8_is_refused_and_the_next_document_is_written() -> None:
    shaped, good = ShapedJson(), bson.encode({"a": "xx", "b": 1})
    texts = [shaped.text(good) for _ in range(2)]
    for bad in (good.replace(b"xx", b"\xff\xfe"), good.replace(b"a\0", b"\xff\0")):
        with pytest.raises(NoJson, match="not UTF-8"):
            shaped.text(bad)
    assert [shaped.text(good)] * 2 == texts


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-1] + b"\1",
        lambda raw: raw.replace(b"\x10b", b"\x20b"),
        lambda raw: raw.replace(b"\x03\0\0\0xx", b"\x05\0\0\0xx"),
    ],
)
def test_bytes_that_are_not_bson_are_refused(damage: Any) -> None:
    shaped, good = ShapedJson(), bson.encode({"a": "xx", "b": 1})
    for _ in range(2):
        shaped.text(good)
    with pytest.raises((DamagedBson, ValueError)):
        shaped.text(damage(good))
