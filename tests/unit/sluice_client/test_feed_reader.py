"""Messages as they are found: in JSON, or in BSON of any size.

What several watermarks say together, and what each of them says.
"""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import bson
import pytest
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableId
from sluice_client.extended_json import NoJson
from sluice_client.extended_json_parser import DamagedJson
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
    assert bson.decode(message.fields["key"].raw) == {"_id": 7}
    assert message.json == message.raw.decode()
    assert message.line == message.raw.decode()
    assert message.names == ["a.b"]


_HEAD = {"v": 1, "feed": "orders", "op": "i", "ns": "a.b", "id": "u", "pos": "0"}


@pytest.mark.parametrize(
    "document",
    [
        {"email": {"$type": "string", "$regex": "^.+@.+$", "$ne": "x"}},
        {"a": {"$date": "x"}},
        {"a": {"$oid": "zz"}},
        {"a": {"$numberLong": 5}},
    ],
    ids=str,
)
def test_documents_of_users_are_what_was_written(document: dict[str, Any]) -> None:
    """Whatever their fields are called, in JSON and in BSON; and a reader that looks for a table's name reads none of them."""
    raw = bson.encode(document)
    in_bson = StoredMessage("", "", bson.encode(_HEAD | {"after": RawBSONDocument(raw)}))
    in_json = StoredMessage("", "", in_bson.json.encode())
    assert in_json.is_json
    assert not in_bson.is_json
    for message in (in_json, in_bson):
        assert message.fields["after"].raw == raw
        assert message.names == ["a.b"]
    assert in_json.fields.keys() == in_bson.fields.keys()


def test_names_are_read_whatever_stands_in_documents() -> None:
    message = StoredMessage("", "", b'{"v": 1, "ns": "a.b", "to": "a.c", "after": {"a": 7.5}}')
    assert message.names == ["a.b", "a.c"]
    with pytest.raises(DamagedJson, match=r"plain number 7\.5"):
        _ = message.fields


def test_text_that_is_no_utf8_is_handed_on_and_shown_as_bytes() -> None:
    raw = bson.encode({"_id": 7, "a": "~~"}).replace(b"~~", b"\xff\xfe")
    message = StoredMessage("", "", bson.encode(_HEAD | {"key": {"_id": 7}, "after": RawBSONDocument(raw)}))
    assert message.fields["after"].raw == raw
    shown = json.loads(message.line)
    assert shown["key"] == {"_id": {"$numberInt": "7"}}
    assert b64decode(shown["after"]["$bson"]) == raw
    with pytest.raises(NoJson):
        _ = message.json


def test_what_is_around_documents_is_plain_in_either_form() -> None:
    message = StoredMessage(
        "", "", bson.encode({"v": 1, "ts": {"t": Int64(7), "i": Int64(1)}, "ids": ["u"], "key": {"_id": 1}})
    )
    for each in (message, StoredMessage("", "", message.json.encode())):
        assert (each.fields["ts"], each.fields["ids"]) == ({"t": 7, "i": 1}, ["u"])


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
