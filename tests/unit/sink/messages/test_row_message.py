"""What is said of an update, and the short ways of writing it as JSON."""

from __future__ import annotations

import json
from typing import Any

import bson
import pytest
from bson import json_util
from bson.int64 import Int64
from hypothesis import given
from hypothesis import strategies as st

from sink.messages.row_message import update_body, update_description, update_json
from sink.messages.shaped_json import ShapedJson
from sluice_client.extended_json import to_json
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
    assert len(written) == sum(bool(each["updatedFields"]) for each in descriptions)


@pytest.mark.parametrize(
    ("description", "update"),
    [
        (
            {"updatedFields": {"n": 2, "color": "red"}, "removedFields": ["color", "old"], "truncatedArrays": []},
            {"set": {"n": 2, "color": "red"}, "unset": ["old"], "append": ["color"]},
        ),
        (
            {"updatedFields": {"a.b": 1}, "removedFields": ["a.b"], "disambiguatedPaths": {"a.b": ["a.b"]}},
            {"set": {"a.b": 1}, "append": ["a.b"], "paths": {"a.b": ["a.b"]}},
        ),
        ({"updatedFields": {}, "removedFields": ["a"], "truncatedArrays": []}, {"unset": ["a"]}),
    ],
)
def test_a_field_that_is_set_again_at_the_end_is_not_unset(description: dict[str, Any], update: dict[str, Any]) -> None:
    raw = bson.encode(description)
    assert bson.decode(update_body(raw)) == update
    assert json.loads(update_json(raw, to_relaxed)).keys() == update.keys()


@given(_descriptions)
def test_a_reader_has_the_description_again(description: dict[str, Any]) -> None:
    raw = bson.encode(description, codec_options=OPTIONS)
    again = update_description(update_body(raw))
    assert update_body(again) == update_body(raw)
    assert bson.decode(again).keys() >= {"updatedFields", "removedFields", "truncatedArrays"}


def test_a_field_at_the_end_is_removed_behind_those_that_are_gone() -> None:
    update = {
        "set": {"n": 2},
        "unset": ["old"],
        "append": ["n"],
        "truncate": [{"field": "x", "size": 2}],
        "upsert": True,
    }
    assert bson.decode(update_description(bson.encode(update))) == {
        "updatedFields": {"n": 2},
        "removedFields": ["old", "n"],
        "truncatedArrays": [{"field": "x", "newSize": 2}],
        "upsert": True,
    }


def test_names_that_are_no_utf8_stay_as_they_are() -> None:
    description = {
        "updatedFields": {"n~": 2},
        "removedFields": ["a~"],
        "truncatedArrays": [{"field": "x~", "newSize": 2}],
    }
    raw = bson.encode(description).replace(b"~", b"\xff")
    assert update_description(update_body(raw)) == raw


def to_relaxed(document: bytes) -> str:
    return json_util.dumps(bson.decode(document))
