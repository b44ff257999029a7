"""Rows that the target refuses: they are named, or kept as dead letters, and the others go in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo import ASCENDING
from pymongo.errors import WriteError

from changefeed.cluster_time import ClusterTime
from changefeed.documents.row_key import key_text
from changefeed.errors import RowRejected
from changefeed.event import RowType
from changefeed.table import TableId, TableName
from devstack.mongodb.server import Client, MongoDB
from sink.mongodb.letters.open_letters import LetterBox
from sink.mongodb.rows.row_writer import MongoRowWriter, RowWriterOptions
from sink.row import RowChange, SourceRow, TargetTable
from tests.component.sink.mongodb.rows.written_rows import (
    RAW,
    Rows,
    changes_of,
    documents_of,
    keys_in,
    made,
    permit,
    table_of,
)


def test_a_refused_unique_value_names_the_row(target: Rows, writer: MongoRowWriter) -> None:
    target.create_index([("u", ASCENDING)], unique=True)
    target.insert_one({"_id": "foreign", "u": 1})
    with pytest.raises(RowRejected, match=r"insert of .*'_id': 7.* at 0\.\d+/82"):
        writer.write([made(table_of(target, ordered=True), RowType.INSERT, 7, {"u": 1})], replay=False)


def test_what_the_target_refuses_goes_to_the_dead_letters_and_the_rest_in(target: Rows) -> None:
    target.create_index([("u", ASCENDING)], unique=True)
    target.insert_one({"_id": "foreign", "u": 1})
    letters = TableName(target.database.name, "letters")
    table = table_of(target, ordered=True)
    writer = MongoRowWriter(
        target.database.client,
        permit=permit,
        options=RowWriterOptions(letters=LetterBox(collection=letters, changefeed="feed")),
    )
    changes = [made(table, RowType.INSERT, number, {"u": number}) for number in range(3)]
    result = writer.write(changes, replay=False)
    letter = target.database["letters"].find_one()
    assert letter is not None
    assert (letter["key"], letter["position"], letter["event"]["document"]) == (
        '{"_id": 1}',
        str(changes[1].position),
        changes[1].document,
    )
    assert (result.tally.rejected, keys_in(result)) == (1, [key_text(changes[1].key)])
    assert target.count_documents({"_id": {"$in": [0, 2]}}) == 2


def test_a_row_that_spoils_a_whole_command_is_found(target: Rows) -> None:
    letters = TableName(target.database.name, "letters")
    table = table_of(target)
    writer = MongoRowWriter(
        target.database.client,
        permit=permit,
        options=RowWriterOptions(letters=LetterBox(collection=letters, changefeed="feed")),
    )
    changes = [made(table, RowType.INSERT, number, {"v": number}) for number in range(9)]
    changes[4] = made(table, RowType.INSERT, 4, {"v": "x" * (17 << 20)})
    result = writer.write(changes, replay=False)
    assert (result.tally.rejected, keys_in(result)) == (1, ["{'_id': 4}"])
    assert target.count_documents({}) == 8


def test_a_table_that_cannot_be_written_is_no_row_s_fault(target: Rows) -> None:
    letters = TableName(target.database.name, "letters")
    name = TableName("no database", "rows")
    table = TargetTable(id=TableId("ab" * 16), source=name, name=name)
    writer = MongoRowWriter(
        target.database.client,
        permit=permit,
        options=RowWriterOptions(letters=LetterBox(collection=letters, changefeed="feed")),
    )
    with pytest.raises(RowRejected, match="no database"):
        writer.write([made(table, RowType.INSERT, number, {}) for number in range(3)], replay=False)
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
    assert (result.tally.rejected, keys_in(result)) == (1, [key_text(change.key)])
    assert target.database["letters"].count_documents({}) == 1


@pytest.mark.parametrize("kind", [RowType.INSERT, RowType.REPLACE])
@pytest.mark.parametrize("replay", [False, True])
def test_a_name_that_no_server_stores_goes_to_the_dead_letters(
    target: Rows, target_uri: str, kind: RowType, replay: bool
) -> None:
    letters = TableName(target.database.name, "letters")
    options = RowWriterOptions(letters=LetterBox(collection=letters, changefeed="feed"))
    table = table_of(target)
    changes = [made(table, kind, key, {}) for key in (1, {"in": {"$key": 2}}, 3)]
    with Client(target_uri) as client:
        result = MongoRowWriter(client, permit=permit, options=options).write(changes, replay=replay)
    if kind is RowType.REPLACE and _stores_when_replaced(target.database["probe"]):
        assert (result.tally.rejected, target.count_documents({})) == (0, 3)
        return
    [letter] = target.database["letters"].find()
    assert "$key is not valid for storage" in letter["error"]
    assert "(code 52)" in letter["error"]
    assert (letter["key"], letter["event"]["document"]) == ('{"_id": {"in": {"$key": 2}}}', changes[1].document)
    assert (result.tally.rejected, keys_in(result)) == (1, [key_text(changes[1].key)])
    assert target.count_documents({}) == 2


def _stores_when_replaced(rows: Rows) -> bool:
    """6.0.27 refuses such a name in an insert, and takes it in a replace that inserts."""
    with suppress(WriteError):
        return rows.replace_one({"_id": {"in": {"$key": 2}}}, {}, upsert=True).upserted_id is not None
    return False


@pytest.mark.since("5.0")  # an earlier source does not store such names itself
def test_names_that_an_older_target_does_not_store_go_to_the_dead_letters_until_they_are_gone(
    source: Rows, own_mongodb: Callable[..., MongoDB]
) -> None:
    """A server of 4.4 stores a name with a dollar only below the first level of a document that is inserted. So it refuses the change of `nested`, and
    stores the whole document when the row is written again.
    """
    long = "x" * 1_000  # so that the source tells the change and not the whole document

    def write(rows: Rows) -> None:
        rows.insert_many([{"_id": 1}, {"_id": "new", "$price": 1}, {"_id": 2, "n": {"$price": 1}}])
        rows.insert_many([{"_id": "nested", "long": long}, {"_id": "changed", "long": long}])
        rows.update_one({"_id": "nested"}, {"$set": {"n": {"$price": 1}}})
        price = {"$setField": {"field": {"$literal": "$price"}, "input": "$$ROOT", "value": 1}}
        rows.update_one({"_id": "changed"}, [{"$replaceWith": price}])

    def rename(rows: Rows) -> None:
        for key in ("new", "changed"):
            rows.replace_one({"_id": key}, {"price": 1})

    def fetch(change: RowChange) -> SourceRow:
        found = source.with_options(codec_options=RAW).find_one(RawBSONDocument(change.key))
        return SourceRow(bytes(found.raw) if found is not None else None, ClusterTime(9, 1))

    with Client(own_mongodb("older", version="4.4.2").uri) as older:
        target = older[source.database.name]["rows"]
        letters = TableName(target.database.name, "letters")
        options = RowWriterOptions(letters=LetterBox(collection=letters, changefeed="feed"))
        writer = MongoRowWriter(older, permit=permit, options=options, fetch=fetch)
        changes = changes_of(source, write, table_of(target))
        for replay, refused in ((False, {"new", "changed", "nested"}), (True, {"new", "changed"})):
            writer.write(changes, replay=replay)
            errors = {letter["key"]: letter["error"] for letter in target.database["letters"].find()}
            assert set(errors) == {f'{{"_id": "{key}"}}' for key in refused}
            assert all("$price" in error for error in errors.values())
            missing = set(documents_of(source)) - set(documents_of(target))
            assert {bson.decode(document)["_id"] for document in missing} == refused
        source.delete_one({"_id": "the end"})
        writer.write(changes_of(source, rename, table_of(target)), replay=False)
        assert target.database["letters"].count_documents({}) == 0
        assert documents_of(target) == documents_of(source)
