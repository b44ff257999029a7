"""What a dead letter contains, and how its row is named."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import ObjectId
from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64

from changefeed.event import RowType
from changefeed.table import TableId, TableName
from sink.mongodb.letters.dead_letter import (
    Kept,
    beginning_with,
    id_of,
    ids_of,
    letter_update,
    request_id,
    row_of,
    table_and_row,
    text_of,
)
from sink.mongodb.letters.stored_letters import StoredLetter, named
from sink.row import RowChange, TargetTable

_TABLE = TableId("ab" * 16)


def _key(**fields: Any) -> bytes:
    return bson.encode(fields)


def test_equal_ids_are_one_row_whatever_its_shard_key_is() -> None:
    assert row_of(_key(_id=7)) == row_of(_key(_id=7.0)) == row_of(_key(_id=Int64(7)))
    assert row_of(_key(_id=7)) != row_of(_key(_id="7"))
    assert len({row_of(_key(_id=7, region=region)) for region in ("eu", "us")} | {row_of(_key(_id=7))}) == 1


def test_letters_and_requests_of_a_changefeed_are_ranges_of_ids() -> None:
    letter = id_of("feed", Kept.LETTER, _TABLE, "ff")
    request = request_id("feed", letter)
    assert table_and_row(letter) == table_and_row(request) == (_TABLE, "ff")
    others = [id_of("feed-2", Kept.LETTER, _TABLE, "ff"), id_of("fee", Kept.LETTER, _TABLE, "ff"), f"{_TABLE}/5.1"]
    for prefix, member in (
        (ids_of("feed"), letter),
        (ids_of("feed", Kept.LETTER, _TABLE), letter),
        (ids_of("feed", Kept.REQUEST), request),
    ):
        range_ = beginning_with(prefix)
        inside = [id for id in [letter, request, *others] if range_["$gte"] <= id < range_["$lt"]]
        assert inside == [member]


def test_a_letter_of_a_large_document_has_its_size_instead() -> None:
    target = TargetTable(id=_TABLE, source=TableName("s", "t"), name=TableName("s", "t"))
    document = bson.encode({"_id": 1, "x": "y" * (13 << 20)})
    change = RowChange(target, RowType.INSERT, _key(_id=1), document, None, 5 << 32, b"82")
    [stage] = letter_update("feed", change, "e" * 100_000)["u"]
    event = stage["$set"]["event"]["$literal"]
    assert (event["text"], event["key"], "document" in event) == (f"... ({len(document)} bytes)", change.key, False)
    assert len(stage["$set"]["error"]["$literal"]) < 20_000


@pytest.mark.parametrize("value", [DatetimeMS(2**60), float("nan"), {"$where": 1}, b"\xff", "a\x00b"])
def test_any_value_has_a_readable_text(value: Any) -> None:
    assert text_of(bson.encode({"v": value})).startswith('{"v": ')


def test_a_long_text_is_cut_and_damaged_bytes_are_no_error() -> None:
    assert text_of(bson.encode({"v": "x" * 100}), most=10) == '{"v": "xxx... (113 bytes)'
    assert text_of(b"\x07\0\0\0\x99\0\0") == "... (7 bytes that are no readable BSON)"
    assert text_of(None) == ""


def _letter(**key: Any) -> StoredLetter:
    raw = _key(**key)
    return StoredLetter(
        id=id_of("feed", Kept.LETTER, _TABLE, row_of(raw)),
        table="s.t",
        table_id=_TABLE,
        key=text_of(raw),
        first_position="5.0",
        position="5.0",
        first_rejected_at=None,
        rejected_at=None,
        tries=1,
        error="",
        type="insert",
        requested=False,
    )


_OBJECT = ObjectId("6b036f6258895488c6185535")


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ("7", {"_id": 7}),
        ("7", {"_id": "7"}),
        ('{"_id": 7}', {"_id": 7}),
        ("seven", {"_id": "seven"}),
        ('"7"', {"_id": "7"}),
        (str(_OBJECT), {"_id": _OBJECT}),
        (f'{{"$oid": "{_OBJECT}"}}', {"_id": _OBJECT}),
        ('{"a": 1, "b": 2}', {"_id": {"a": 1, "b": 2}}),
        ('{"_id": 7, "region": "eu"}', {"_id": 7, "region": "eu"}),
    ],
)
def test_a_user_names_a_row_as_it_is_listed_or_by_its_id(said: str, key: dict[str, Any]) -> None:
    letters = [_letter(**key), _letter(_id="another")]
    assert named(letters, said) == letters[:1]


def test_a_name_that_fits_no_row_finds_none() -> None:
    assert named([_letter(_id=7)], "{broken") == []
