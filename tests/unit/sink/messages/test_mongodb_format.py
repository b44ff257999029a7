"""Change events as a server shows them: https://www.mongodb.com/docs/manual/reference/change-events/"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import bson
import pytest
from bson import json_util
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions
from bson.timestamp import Timestamp

from changefeed.config.sinks.message_options import FormatName, MessageEncoding, MessageOptions
from changefeed.documents.document import Document
from changefeed.event import DdlType, RowType
from changefeed.records.ddl import DdlRecord
from changefeed.table import TableId, TableName
from sink.ddl import (
    CreateIndexes,
    CreateTable,
    DownstreamDdl,
    DropIndexes,
    DropTables,
    ModifyTable,
    RenameTable,
    ShardTable,
    Skip,
)
from sink.messages.formats import message_format
from sink.messages.message import emptied_message
from sink.messages.message_format import KeyedMessage, MessageFormat
from sink.row import RowChange, RowDetails
from sluice_client.pos import pos_after, pos_of
from tests.unit.sink.messages.changes import AT, ID, NAME, TABLE, change, record

_UUIDS: CodecOptions[dict[str, Any]] = CodecOptions(dict, uuid_representation=UuidRepresentation.STANDARD)
_NS = {"db": "inventory", "coll": "customers"}
_ABOUT = {"_id": {"_data": pos_of(AT)}, "clusterTime": Timestamp(1_558_965_508, 31), "collectionUUID": UUID(ID)}
_UPDATE = {
    "updatedFields": {"n": 2},
    "removedFields": ["a"],
    "truncatedArrays": [{"field": "x", "newSize": 2}],
    "disambiguatedPaths": {},
}
_INDEX = {"v": 2, "key": {"email": 1}, "name": "email_1"}
_TO = TableName("inventory", "people")
_DROPPED = TableId("6a1a690bfe64486f92b3d89b88ff475c")


def _format(encoding: MessageEncoding = MessageEncoding.BSON) -> MessageFormat:
    return message_format("orders", "shop", MessageOptions(format=FormatName.MONGODB, encoding=encoding))


def _event(message: KeyedMessage | None) -> dict[str, Any]:
    assert message is not None
    assert message.value is not None
    return bson.decode(message.value, _UUIDS)


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        (change(RowType.INSERT, 7, document={"_id": 7, "n": 1}), {"fullDocument": {"_id": 7, "n": 1}}),
        (change(RowType.REPLACE, 7, document={"_id": 7, "n": 2}), {"fullDocument": {"_id": 7, "n": 2}}),
        (change(RowType.UPDATE, 7, update=_UPDATE), {"updateDescription": _UPDATE}),
        (change(RowType.UPDATE, 7, update={**_UPDATE, "upsert": True}), {"updateDescription": _UPDATE}),
        (change(RowType.UPDATE, 7, update={**_UPDATE, "removedFields": ["n", "a"]}), {"updateDescription": _UPDATE}),
        (change(RowType.DELETE, 7), {}),
    ],
)
def test_a_change_is_the_event_of_the_server(changed: RowChange, more: dict[str, Any]) -> None:
    (message,) = _format().change(changed)
    assert _event(message) == {
        **_ABOUT,
        "operationType": changed.type.value,
        "ns": _NS,
        "documentKey": {"_id": 7},
        **more,
    }


def test_what_is_known_of_a_change_stands_as_servers_have_it() -> None:
    before, after = bson.encode({"_id": 7, "n": 1}), bson.encode({"_id": 7, "n": 2})
    changed = change(RowType.UPDATE, 7, update=_UPDATE)
    details = RowDetails(1_767_225_600_000, (ID, 5), before, after, "both")
    (message,) = _format().change(changed._replace(details=details))
    event = _event(message)
    assert event["fullDocumentBeforeChange"] == {"_id": 7, "n": 1}
    assert (event["fullDocument"], event["updateDescription"]) == ({"_id": 7, "n": 2}, _UPDATE)
    assert event["wallTime"] == datetime(2026, 1, 1)  # noqa: DTZ001 - as PyMongo decodes it
    assert (event["lsid"], event["txnNumber"]) == ({"id": UUID(ID)}, 5)


def test_a_copied_document_is_an_insert() -> None:
    (message,) = _format().copied(TABLE, bson.encode({"_id": 7}), bson.encode({"_id": 7}), AT.ts)
    event = _event(message)
    assert (event["operationType"], event["_id"]["_data"]) == ("insert", pos_after(AT.ts))
    assert dict(message.headers)["sluice.op"] == b"r"


def test_json_is_the_canonical_form_of_the_event() -> None:
    changed = change(RowType.INSERT, 7, document={"_id": 7, "n": 1})
    (by_json,), (by_bson,) = _format(MessageEncoding.JSON).change(changed), _format().change(changed)
    assert by_json.value is not None
    assert by_bson.value is not None
    assert json_util.loads(by_json.value) == bson.decode(by_bson.value)
    assert by_json.key == b'{"_id": {"$numberLong": "7"}}'


@pytest.mark.parametrize(
    ("made", "ddl", "expected"),
    [
        (
            record(DdlType.CREATE, {"capped": True}),
            CreateTable(name=NAME, options=Document.of({"capped": True})),
            {"operationType": "create", "ns": _NS, "operationDescription": {"capped": True}},
        ),
        (
            record(DdlType.CREATE_INDEXES, {"indexes": [_INDEX]}),
            CreateIndexes(name=NAME, indexes=(Document.of(_INDEX),)),
            {"operationType": "createIndexes", "ns": _NS, "operationDescription": {"indexes": [_INDEX]}},
        ),
        (
            record(DdlType.DROP_INDEXES, {"indexes": [_INDEX]}),
            DropIndexes(name=NAME, indexes=("email_1",)),
            {"operationType": "dropIndexes", "ns": _NS, "operationDescription": {"indexes": [_INDEX]}},
        ),
        (
            record(DdlType.MODIFY, {"validationLevel": "off"}),
            ModifyTable(name=NAME, changes=Document.of({"validationLevel": "off"})),
            {"operationType": "modify", "ns": _NS, "operationDescription": {"validationLevel": "off"}},
        ),
        (
            record(DdlType.RENAME, renamed_to=_TO, drop_target=_DROPPED),
            RenameTable(name=NAME, to=_TO, replaces=True),
            {
                "operationType": "rename",
                "ns": _NS,
                "to": {"db": "inventory", "coll": "people"},
                "operationDescription": {
                    "to": {"db": "inventory", "coll": "people"},
                    "dropTarget": UUID(_DROPPED),
                },
            },
        ),
        (record(DdlType.DROP), DropTables(names=(NAME,)), {"operationType": "drop", "ns": _NS}),
        (
            record(DdlType.SHARD_COLLECTION, {"shardKey": {"a": 1}}),
            ShardTable(name=NAME, how=DdlType.SHARD_COLLECTION, description=Document.of({"shardKey": {"a": 1}})),
            {"operationType": "shardCollection", "ns": _NS, "operationDescription": {"shardKey": {"a": 1}}},
        ),
    ],
)
def test_a_ddl_is_the_event_of_the_server(made: DdlRecord, ddl: DownstreamDdl, expected: dict[str, Any]) -> None:
    assert _event(_format().ddl(made, ddl)) == {**_ABOUT, **expected}


def test_a_dropped_database_has_no_collection() -> None:
    event = _event(_format().ddl(record(DdlType.DROP_DATABASE), DropTables(names=(NAME,))))
    assert (event["operationType"], event["ns"]) == ("dropDatabase", {"db": "inventory"})
    assert "collectionUUID" not in event


def test_what_has_no_event_is_not_said() -> None:
    assert _format().ddl(record(DdlType.DROP), Skip(note="outside")) is None
    assert _format().told(emptied_message("orders", ID, NAME, AT)) is None
    assert not _format().in_band
