"""Envelopes as Debezium documents them: https://debezium.io/documentation/reference/stable/connectors/mongodb.html#mongodb-events"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64
from bson.objectid import ObjectId

from changefeed.config.sinks.message_options import FormatName, JsonMode, MessageOptions
from changefeed.event import DdlType, RowType
from changefeed.table import TableName
from sink.ddl import CreateIndexes, DropTables, ModifyTable, RenameTable, Skip
from sink.messages.formats import message_format
from sink.messages.message import emptied_message, watermark_message
from sink.messages.message_format import KeyedMessage, MessageFormat
from sink.row import RowDetails
from sluice_client.pos import pos_of
from tests.unit.sink.messages.changes import AT, NAME, TABLE, change, record

_ANNE = {"_id": Int64(1004), "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
_AFTER = '{"_id": {"$numberLong": "1004"},"first_name": "Anne","last_name": "Kretchmar","email": "annek@noanswer.org"}'
_SOURCE = {
    "connector": "mongodb",
    "name": "fulfillment",
    "ts_ms": 1558965508000,
    "ts_us": 1558965508000000,
    "ts_ns": 1558965508000000000,
    "snapshot": "false",
    "db": "inventory",
    "sequence": None,
    "collection": "customers",
    "ord": 31,
    "lsid": None,
    "txnNumber": None,
    "wallTime": None,
}


def _format(mode: JsonMode = JsonMode.LEGACY, *, tombstones: bool = True) -> MessageFormat:
    options = MessageOptions(format=FormatName.DEBEZIUM, json_mode=mode, tombstones=tombstones)
    return message_format("orders", "fulfillment", options)


def _envelope(message: KeyedMessage) -> dict[str, Any]:
    assert message.value is not None
    envelope: dict[str, Any] = json.loads(message.value)
    assert envelope["source"].pop("version") == "sluice"
    assert [envelope.pop(name) for name in ("ts_ms", "ts_us", "ts_ns")] == [1558965508 * 1000**n for n in (1, 2, 3)]
    assert envelope.pop("transaction") is None
    return envelope


def test_an_insert() -> None:
    (message,) = _format().change(change(RowType.INSERT, Int64(1004), document=_ANNE))
    assert message.key == b'{"id": "1004"}'
    assert _envelope(message) == {
        "before": None,
        "after": _AFTER,
        "updateDescription": None,
        "source": _SOURCE,
        "op": "c",
    }


def test_an_update_says_the_fields_that_it_changed() -> None:
    update = {
        "updatedFields": {"first_name": "Anne Marie", "n": Int64(1)},
        "removedFields": [],
        "truncatedArrays": [],
        "disambiguatedPaths": {},
    }
    (message,) = _format().change(change(RowType.UPDATE, 1004, update=update))
    assert _envelope(message) == {
        "before": None,
        "after": None,
        "updateDescription": {
            "removedFields": None,
            "updatedFields": '{"first_name": "Anne Marie", "n": 1}',
            "truncatedArrays": None,
        },
        "source": _SOURCE,
        "op": "u",
    }


def test_an_update_says_removed_fields_and_truncated_arrays() -> None:
    update = {
        "updatedFields": {},
        "removedFields": ["a.b", "c"],
        "truncatedArrays": [{"field": "x", "newSize": 2}],
        "upsert": True,
    }
    (message,) = _format().change(change(RowType.UPDATE, 1004, update=update))
    assert _envelope(message)["updateDescription"] == {
        "removedFields": ["a.b", "c"],
        "updatedFields": "{}",
        "truncatedArrays": [{"field": "x", "size": 2}],
    }


def test_a_field_that_is_set_is_not_removed_too() -> None:
    """The oplog says of a new field that it is put at the end: removed, and set."""
    update = {"updatedFields": {"n": 1}, "removedFields": ["n", "c"], "truncatedArrays": []}
    (message,) = _format().change(change(RowType.UPDATE, 1004, update=update))
    said = _envelope(message)["updateDescription"]
    assert (said["removedFields"], said["updatedFields"]) == (["c"], '{"n": 1}')


def test_a_replace_is_an_update_with_the_whole_document() -> None:
    (message,) = _format().change(change(RowType.REPLACE, 1004, document=_ANNE))
    envelope = _envelope(message)
    assert (envelope["op"], envelope["after"], envelope["updateDescription"]) == ("u", _AFTER, None)


def test_images_are_before_and_after() -> None:
    images = RowDetails(1558965508123, ("ab" * 16, 7), bson.encode({"_id": 1004}), bson.encode(_ANNE), "both")
    changed = change(RowType.UPDATE, 1004, update={"updatedFields": {"first_name": "Anne"}})
    (message,) = _format().change(changed._replace(details=images))
    envelope = _envelope(message)
    assert (envelope["before"], envelope["after"]) == ('{"_id": 1004}', _AFTER)
    assert envelope["source"]["wallTime"] == 1558965508123
    session = '{"id": {"$binary": "q6urq6urq6urq6urq6urqw==","$type": "04"}}'
    assert (envelope["source"]["lsid"], envelope["source"]["txnNumber"]) == (session, 7)
    deletion, _ = _format().change(change(RowType.DELETE, 1004)._replace(details=images._replace(after=None)))
    assert (_envelope(deletion)["before"], _envelope(deletion)["after"]) == ('{"_id": 1004}', None)


def test_a_delete_is_followed_by_a_tombstone() -> None:
    deletion, tombstone = _format().change(change(RowType.DELETE, 1004))
    envelope = _envelope(deletion)
    assert (envelope["op"], envelope["before"], envelope["after"]) == ("d", None, None)
    assert tombstone == KeyedMessage(b'{"id": "1004"}', None, deletion.headers)
    assert len(_format(tombstones=False).change(change(RowType.DELETE, 1004))) == 1


def test_a_copied_document_is_read_in_a_snapshot() -> None:
    (message,) = _format().copied(TABLE, bson.encode(_ANNE), bson.encode({"_id": 1004}), AT.ts)
    envelope = _envelope(message)
    assert (envelope["op"], envelope["after"], envelope["source"]["snapshot"]) == ("r", _AFTER, "true")


@pytest.mark.parametrize(
    ("identity", "key"),
    [
        (1234, "1234"),
        (12.34, "12.34"),
        ("1234", '"1234"'),
        ({"hi": "kafka", "nums": [10.0, 100.0]}, '{"hi": "kafka","nums": [10.0,100.0]}'),
        (ObjectId("596e275826f08b2730779e1f"), '{"$oid": "596e275826f08b2730779e1f"}'),
        (Binary(b"kafka"), '{"$binary": {"base64": "a2Fma2E=","subType": "00"}}'),
    ],
)
def test_a_key_is_the_id_as_text(identity: Any, key: str) -> None:
    (message,) = _format().change(change(RowType.INSERT, {"_id": identity}, document={"_id": identity}))
    assert message.key is not None
    assert json.loads(message.key) == {"id": key}


def test_the_fields_of_a_shard_key_are_not_in_the_key() -> None:
    (message,) = _format().change(change(RowType.INSERT, {"email": "a@b", "_id": 42}, document={"_id": 42}))
    assert message.key == b'{"id": "42"}'


def test_dates_may_be_later_than_any_of_python() -> None:
    late = DatetimeMS(2**60)
    (message,) = _format().change(change(RowType.INSERT, {"_id": late, "email": "a@b"}, document={"_id": late}))
    assert message.key is not None
    assert json.loads(json.loads(message.key)["id"]) == {"$date": {"$numberLong": str(2**60)}}
    made = record(DdlType.MODIFY, {"validator": {"at": {"$lt": late}}})
    assert _format().ddl(made, ModifyTable(name=NAME, changes=made.event.description)) is not None


_PHONE = {"_id": 1, "phone": Int64(123), "created": datetime(2026, 7, 3, 11, 35, 53, 473_000, tzinfo=UTC)}
_CHANGED = {"updatedFields": {"phone": Int64(123), "created": _PHONE["created"]}, "removedFields": []}


@pytest.mark.parametrize(
    ("mode", "after", "updated"),
    [
        (
            JsonMode.LEGACY,
            '"phone": {"$numberLong": "123"},"created": {"$date": 1783078553473}',
            '"phone": 123, "created": {"$date": "2026-07-03T11:35:53.473Z"}',
        ),
        (
            JsonMode.EXTENDED,
            '"phone": {"$numberLong": "123"},"created": {"$date": {"$numberLong": "1783078553473"}}',
            '"phone": {"$numberLong": "123"},"created": {"$date": {"$numberLong": "1783078553473"}}',
        ),
    ],
)
def test_documents_are_json_of_the_mode(mode: JsonMode, after: str, updated: str) -> None:
    (inserted,) = _format(mode).change(change(RowType.INSERT, 1, document=_PHONE))
    (changed,) = _format(mode).change(change(RowType.UPDATE, 1, update=_CHANGED))
    assert after in _envelope(inserted)["after"]
    assert _envelope(changed)["updateDescription"]["updatedFields"] == f"{{{updated}}}"


def test_a_ddl_is_the_native_event() -> None:
    index = {"v": 2, "key": {"email": 1}, "name": "email_1"}
    made = record(DdlType.CREATE_INDEXES, {"indexes": [index]})
    ddl = CreateIndexes(name=NAME, indexes=(made.event.description.of(index),))
    message = _format().ddl(made, ddl)
    assert message is not None
    assert message.value is not None
    fields = json.loads(message.value)
    assert message.key == b'{"databaseName": "inventory"}'
    assert (fields["databaseName"], fields["schemaName"], fields["tableChanges"]) == ("inventory", None, [])
    assert fields["source"].items() >= {"db": "inventory", "collection": "customers", "ord": 31}.items()
    event = json.loads(fields["ddl"])
    assert event["_id"] == {"_data": pos_of(AT)}
    assert (event["operationType"], event["ns"]) == ("createIndexes", {"db": "inventory", "coll": "customers"})
    assert event["operationDescription"]["indexes"][0]["name"] == "email_1"
    assert dict(message.headers)["sluice.op"] == b"ddl"


def test_a_dropped_database_concerns_no_collection() -> None:
    message = _format().ddl(record(DdlType.DROP_DATABASE), DropTables(names=(NAME,)))
    assert message is not None
    assert message.value is not None
    assert json.loads(message.value)["source"]["collection"] is None


def test_a_rename_out_of_the_filter_is_a_drop() -> None:
    renamed = record(DdlType.RENAME, renamed_to=TableName("archive", "x"))
    message = _format().ddl(renamed, DropTables(names=(NAME,)))
    assert message is not None
    assert message.value is not None
    assert json.loads(json.loads(message.value)["ddl"])["operationType"] == "drop"


def test_what_debezium_does_not_know_is_not_said() -> None:
    assert _format().ddl(record(DdlType.DROP), Skip(note="outside")) is None
    assert _format().told(emptied_message("orders", TABLE.id, NAME, AT)) is None
    assert not _format().in_band
    renamed = RenameTable(name=NAME, to=TableName("inventory", "people"), replaces=False)
    assert _format().ddl(record(DdlType.RENAME, renamed_to=TableName("inventory", "people")), renamed) is not None


def test_a_watermark_is_that_of_sluice() -> None:
    message = _format().told(watermark_message("orders", AT))
    assert message is not None
    assert message.value is not None
    assert json.loads(message.value) == {"v": 1, "feed": "orders", "op": "w", "pos": pos_of(AT), "tables": "all"}
