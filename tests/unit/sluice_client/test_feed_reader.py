"""Messages as they are found: in JSON, or in BSON of any size.

What several watermarks say together, and what each of them says.
"""

from __future__ import annotations

import json

import bson
import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableId
from sluice_client.feed_reader import NOTHING, StoredMessage, Watermark

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


_A, _B = TableId("a"), TableId("b")


def _mark(at: int, **behind: int) -> Watermark:
    return Watermark(_at(at), {TableId(table): _at(position) for table, position in behind.items()})


def _at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 1))


def test_together_they_say_the_furthest_of_each_table() -> None:
    assert _mark(10, a=5).joined(_mark(8)) == _mark(10, a=8)
    assert _mark(10, a=5).joined(_mark(20, b=12)) == _mark(20, b=12)


def test_each_of_them_says_the_least_of_each_table() -> None:
    assert _mark(10, a=5).met(_mark(8)) == _mark(8, a=5)
    assert _mark(10, a=9).met(_mark(8)) == _mark(8)
    assert _mark(20, a=5, b=12).met(_mark(15, a=7)) == _mark(15, a=5, b=12)
    assert _mark(20).met(NOTHING) == NOTHING


def test_one_covers_another_that_says_nothing_more() -> None:
    assert _mark(10).covers(_mark(10, a=5))
    assert _mark(10, a=5).covers(_mark(9, a=5))
    assert not _mark(10, a=5).covers(_mark(9))
    assert _mark(10, a=5).of(_A) == _at(5)
    assert _mark(10, a=5).of(_B) == _at(10)
