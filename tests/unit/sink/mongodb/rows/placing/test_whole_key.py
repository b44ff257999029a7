from __future__ import annotations

from typing import Any

import bson
import pytest
from bson.int64 import Int64

from changefeed.errors import SinkRefused
from sink.mongodb.rows.placing.shard_keys import shard_key_of
from sink.mongodb.rows.placing.whole_key import id_alone, key_of_document, key_of_event, touches, unplaced_key

PATHS = ("customer", "at.day")


def _raw(fields: dict[str, Any]) -> bytes:
    return bson.encode(fields)


@pytest.mark.parametrize(
    ("document", "key"),
    [
        ({"_id": 7, "x": 1, "at": {"day": 2, "hour": 3}, "customer": "c"}, {"_id": 7, "customer": "c", "at.day": 2}),
        ({"_id": Int64(7), "customer": None}, {"_id": Int64(7), "customer": None, "at.day": None}),
        ({"_id": {"a": 1}, "at": 5}, {"_id": {"a": 1}, "customer": None, "at.day": None}),
    ],
)
def test_a_document_says_its_whole_key(document: dict[str, Any], key: dict[str, Any]) -> None:
    assert key_of_document(_raw(document), PATHS) == _raw(key)


def test_the_key_of_an_event_is_whole_if_it_has_each_field() -> None:
    event = _raw({"customer": 3, "at.day": 2, "more": 1, "_id": 7})
    assert key_of_event(event, PATHS) == _raw({"_id": 7, "customer": 3, "at.day": 2})
    assert key_of_event(_raw({"customer": 3, "_id": 7}), PATHS) is None
    assert unplaced_key(event, PATHS) == _raw({"_id": 7, "customer": None, "at.day": None})
    assert id_alone(event) == _raw({"_id": 7})


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        ({"updatedFields": {"customer": 1}}, True),
        ({"updatedFields": {"at": {}}}, True),
        ({"removedFields": ["at.day.x"]}, True),
        ({"truncatedArrays": [{"field": "at.day", "newSize": 1}]}, True),
        ({"updatedFields": {"customers": 1, "at.hour": 1}, "removedFields": ["a"]}, False),
    ],
)
def test_an_update_touches_the_key_at_above_or_below_its_fields(update: dict[str, Any], expected: bool) -> None:
    assert touches(_raw(update), PATHS) is expected


def test_the_shard_key_is_what_the_target_says() -> None:
    assert shard_key_of({"_id": "a.b", "key": {"customer": "hashed", "_id": 1}}) == ("customer",)
    assert shard_key_of({"_id": "a.b", "key": {"_id": "hashed"}}) == ()
    for unsharded in (None, {"key": {"k": 1}, "dropped": True}, {"key": {"_id": 1}, "unsplittable": True}):
        assert shard_key_of(unsharded) == ()
    with pytest.raises(SinkRefused, match=r"a\.b.*collation"):
        shard_key_of({"_id": "a.b", "key": {"k": 1}, "defaultCollation": {"locale": "de"}})
