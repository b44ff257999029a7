"""Rows that the target refuses: they are named, or kept as dead letters, and the others go in."""

from __future__ import annotations

import bson
import pytest
from pymongo import ASCENDING

from changefeed.errors import RowRejected
from changefeed.event import RowType
from changefeed.table import TableId, TableName
from devstack.mongodb.server import Client
from sink.mongodb.letters.open_letters import LetterBox
from sink.mongodb.rows.row_writer import MongoRowWriter, RowWriterOptions
from sink.row import TargetTable
from tests.component.sink.mongodb.rows.written_rows import Rows, made, permit, table_of


def test_a_refused_unique_value_names_the_row(target: Rows, writer: MongoRowWriter) -> None:
    target.create_index([("u", ASCENDING)], unique=True)
    target.insert_one({"_id": "foreign", "u": 1})
    with pytest.raises(RowRejected, match=r"insert of .*'_id': 7.* at 0\.\d+/82"):
        writer.write([made(table_of(target, ordered=True), RowType.INSERT, 7, {"u": 1})], replay=False)


def test_what_the_target_refuses_goes_to_the_dead_letters_and_the_rest_in(target: Rows, target_uri: str) -> None:
    target.create_index([("u", ASCENDING)], unique=True)
    target.insert_one({"_id": "foreign", "u": 1})
    letters = TableName(target.database.name, "letters")
    table = table_of(target, ordered=True)
    writer = MongoRowWriter(
        Client(target_uri),
        permit=permit,
        options=RowWriterOptions(letters=LetterBox(collection=letters, changefeed="feed")),
    )
    changes = [made(table, RowType.INSERT, number, {"u": number}) for number in range(3)]
    result = writer.write(changes, replay=False)
    writer.close()
    letter = target.database["letters"].find_one()
    assert letter is not None
    assert (letter["key"], letter["position"], letter["event"]["document"]) == (
        '{"_id": 1}',
        str(changes[1].position),
        changes[1].document,
    )
    assert [deviation.change.key for deviation in result.rejected] == [changes[1].key]
    assert target.count_documents({"_id": {"$in": [0, 2]}}) == 2


def test_a_row_that_spoils_a_whole_command_is_found(target: Rows, target_uri: str) -> None:
    letters = TableName(target.database.name, "letters")
    table = table_of(target)
    writer = MongoRowWriter(
        Client(target_uri),
        permit=permit,
        options=RowWriterOptions(letters=LetterBox(collection=letters, changefeed="feed")),
    )
    changes = [made(table, RowType.INSERT, number, {"v": number}) for number in range(9)]
    changes[4] = made(table, RowType.INSERT, 4, {"v": "x" * (17 << 20)})
    result = writer.write(changes, replay=False)
    writer.close()
    assert [bson.decode(deviation.change.key) for deviation in result.rejected] == [{"_id": 4}]
    assert target.count_documents({}) == 8


def test_a_table_that_cannot_be_written_is_no_row_s_fault(target: Rows, target_uri: str) -> None:
    letters = TableName(target.database.name, "letters")
    name = TableName("no database", "rows")
    table = TargetTable(id=TableId("ab" * 16), source=name, name=name)
    writer = MongoRowWriter(
        Client(target_uri),
        permit=permit,
        options=RowWriterOptions(letters=LetterBox(collection=letters, changefeed="feed")),
    )
    with pytest.raises(RowRejected, match="no database"):
        writer.write([made(table, RowType.INSERT, number, {}) for number in range(3)], replay=False)
    writer.close()
    assert target.database["letters"].count_documents({}) == 0


@pytest.mark.since("6.0")  # earlier servers accept this document
def test_what_is_too_large_for_the_target_is_named_with_its_size(target: Rows, target_uri: str) -> None:
    """A source of 4.4 accepts an insert of this document; an oplog entry of 6.0 has no room for the `_id` beside the document."""
    letters = TableName(target.database.name, "letters")
    key, blob = "k" * 100_000, {"blob": b"x" * (16 * 1024 * 1024 - 100_100)}
    change = made(table_of(target), RowType.INSERT, key, blob)
    with Client(target_uri) as client:
        for replay in (False, True):
            with pytest.raises(RowRejected, match=r"insert of .*'_id': 'k+\.\.\. \(100\d+ bytes\).*10334") as raised:
                MongoRowWriter(client, permit=permit).write([change], replay=replay)
            assert len(str(raised.value)) < 2_000
        options = RowWriterOptions(letters=LetterBox(collection=letters, changefeed="feed"))
        result = MongoRowWriter(client, permit=permit, options=options).write([change], replay=True)
    assert [deviation.change.key for deviation in result.rejected] == [change.key]
    assert target.database["letters"].count_documents({}) == 1
