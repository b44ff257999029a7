"""The short way of an update that only sets fields says what the long one does."""

from __future__ import annotations

from typing import Any

import bson
from bson.int64 import Int64
from hypothesis import given
from hypothesis import strategies as st

from sink.messages.extended_json import to_json
from sink.messages.row_message import update_body, update_json
from sink.messages.shaped_json import ShapedJson
from tests.unit.sink.messages.any_bson import OPTIONS, int64s, names, texts

_fields = st.dictionaries(
    names, st.one_of(texts, int64s.map(Int64), st.none(), st.lists(texts, max_size=2)), max_size=3
)
_truncated = st.lists(st.fixed_dictionaries({"field": texts, "newSize": st.integers(0, 9)}), max_size=1)
_descriptions = st.fixed_dictionaries(
    {"updatedFields": _fields, "removedFields": st.lists(texts, max_size=1), "truncatedArrays": _truncated},
    optional={"disambiguatedPaths": _fields, "upsert": st.booleans()},
)
_plain = _fields.map(lambda fields: {"updatedFields": fields, "removedFields": [], "truncatedArrays": []})

_ORDER = ["updatedFields", "removedFields", "truncatedArrays"]
"""In which descriptions come; in another one the short way is not taken."""


@given(st.lists(st.one_of(_plain, _descriptions), max_size=4))
def test_the_text_is_that_of_the_body(descriptions: list[dict[str, Any]]) -> None:
    written: list[bytes] = []
    shaped = ShapedJson()

    def text(document: bytes) -> str:
        written.append(document)
        return shaped.text(document)

    for description in descriptions:
        raw = bson.encode(description, codec_options=OPTIONS)
        assert update_json(raw, text) == to_json(update_body(raw))
    only_set = [
        each
        for each in descriptions
        if list(each) == _ORDER and each["updatedFields"] and not any(list(each.values())[1:])
    ]
    assert len(written) == len(only_set)
