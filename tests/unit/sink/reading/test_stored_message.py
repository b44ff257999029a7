"""Messages as they are found: in JSON, or in BSON of any size."""

from __future__ import annotations

import json

import bson
import pytest

from sink.reading.stored_message import StoredMessage

_CURLY = ord("{")


def _of_size(size: int) -> bytes:
    empty = len(bson.encode({"v": 1, "after": ""}))
    return bson.encode({"v": 1, "after": "x" * (size - empty)})


@pytest.mark.parametrize("size", [_CURLY, _CURLY + (ord('"') << 8), 200])
def test_bson_is_not_taken_for_json_though_its_size_begins_like_it(size: int) -> None:
    raw = _of_size(size)
    assert len(raw) == size
    message = StoredMessage("", "", raw)
    assert message.fields == bson.decode(raw)
    assert json.loads(message.json)["v"] == 1


def test_json_is_shown_as_it_is() -> None:
    message = StoredMessage("", "", b'{"v": 1, "ns": "a.b", "key": {"_id": {"$numberInt": "7"}}}')
    assert message.fields["key"] == {"_id": 7}
    assert message.json == message.raw.decode()
    assert message.names == ["a.b"]
