from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson.binary import Binary
from bson.int64 import Int64
from bson.timestamp import Timestamp

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import OrderBy
from changefeed.config.sinks.message_options import Images
from changefeed.documents.document import Document
from changefeed.errors import ImageMissing, InvariantError, SourceUnsupported
from changefeed.event import DdlEvent, DdlType, RowType
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema
from processor.task.rows.mounter import Mounter, MountOptions
from schema_store.versions import SchemaVersions
from sink.mongodb.letters.dead_letter import letter_update
from sink.row import RowChange, RowDetails
from source.columns import Columns
from source.oplog import row_entry
from source.stream.change_event import about_of, scan, update_of

_A = TableId("aa" * 16)
_ORDERS, _SALES = TableName("shop", "orders"), TableName("shop", "sales")
_UNIQUE = Document.of({"key": {"n": 1}, "name": "n_1", "unique": True})


def _at(seconds: int, token: str = "") -> Position:
    return Position(ClusterTime(seconds, 1), token)


def _versions(**schema: Any) -> SchemaVersions:
    base = TableSchema(id=_A, name=_ORDERS, valid_from=_at(1), **schema)
    return SchemaVersions.of([base])


def _renamed() -> SchemaVersions:
    return _versions().apply(
        DdlEvent(position=_at(9, "8205"), type=DdlType.RENAME, db="shop", table=_ORDERS, id=_A, renamed_to=_SALES)
    )


def _route(name: TableName) -> TableName | None:
    return TableName("copy", name.coll) if name.db == "shop" else None


def _event(name: TableName, seconds: int, *, id: TableId | None = _A, token: str = "8204", **fields: Any) -> bytes:
    header: dict[str, Any] = {"_id": {"_data": token}, "operationType": "insert", "clusterTime": Timestamp(seconds, 1)}
    if id is not None:
        header["collectionUUID"] = Binary(bytes.fromhex(id), 4)
    content = {"fullDocument": {"_id": 1}, "ns": {"db": name.db, "coll": name.coll}, "documentKey": {"_id": 1}}
    return bson.encode({**header, **content, **fields})


def _mount(mounter: Mounter, event: bytes) -> RowChange:
    return mounter.mount(event, scan(event))


def test_an_event_becomes_a_row_change_with_its_bytes_untouched() -> None:
    change = _mount(Mounter(_versions(), _route, update_of), _event(_ORDERS, 5))
    assert change == RowChange(
        change.table, RowType.INSERT, bson.encode({"_id": 1}), bson.encode({"_id": 1}), None, 5 << 32 | 1, b"8204"
    )
    assert (change.table.source, change.table.name, change.table.ordered) == (
        _ORDERS,
        TableName("copy", "orders"),
        False,
    )


def test_an_update_carries_its_description_and_not_the_looked_up_document() -> None:
    description = {"updatedFields": {"a": 1}, "removedFields": []}
    change = _mount(
        Mounter(_versions(), _route, update_of),
        _event(_ORDERS, 5, operationType="update", updateDescription=description),
    )
    assert (change.type, change.document, change.update) == (RowType.UPDATE, None, bson.encode(description))


_WAS, _IS = {"_id": 1, "a": 1, "ssn": "secret"}, {"_id": 1, "a": 2, "ssn": "secret"}
_UPDATE: dict[str, Any] = {
    "operationType": "update",
    "updateDescription": {"updatedFields": {"a": 2}, "removedFields": []},
}
_DELETE: dict[str, Any] = {"operationType": "delete", "fullDocument": None}
_TIMES: dict[str, Any] = {
    "wallTime": datetime(2026, 1, 1, tzinfo=UTC),
    "lsid": {"id": Binary(b"s" * 16, 4)},
    "txnNumber": Int64(7),
}


def _details(images: Images, columns: Columns | None = None, **fields: Any) -> RowDetails:
    options = MountOptions(about_of=about_of, images=images)
    mounter = Mounter(_versions(), _route, update_of, options, columns_of=lambda _: columns)
    details = _mount(mounter, _event(_ORDERS, 5, **fields)).details
    assert details is not None
    return details


def test_messages_say_when_and_in_which_transaction_a_row_was_written() -> None:
    assert _details(Images.NONE, **_TIMES) == RowDetails(1_767_225_600_000, (b"s".hex() * 16, 7))
    assert _details(Images.NONE, fullDocumentBeforeChange=_WAS, **_UPDATE) == RowDetails()


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, (None, None, "after")),
        ({**_UPDATE, "fullDocument": _IS, "fullDocumentBeforeChange": _WAS}, (_WAS, _IS, "both")),
        ({**_UPDATE, "fullDocument": None, "fullDocumentBeforeChange": _WAS}, (_WAS, None, "before")),
        ({**_UPDATE, "fullDocument": _IS, "fullDocumentBeforeChange": None}, (None, _IS, "after")),
        ({**_UPDATE, "fullDocument": None}, (None, None, "missing")),
        ({"operationType": "replace", "fullDocumentBeforeChange": _WAS}, (_WAS, None, "both")),
        ({**_DELETE, "fullDocumentBeforeChange": _WAS}, (_WAS, None, "before")),
        (_DELETE, (None, None, "missing")),
    ],
)
def test_a_change_has_the_images_that_the_source_has(fields: dict[str, Any], found: tuple[Any, Any, str]) -> None:
    details = _details(Images.AVAILABLE, **fields)
    before, after = (None if raw is None else bson.decode(raw) for raw in (details.before, details.after))
    assert (before, after, details.images) == found
    complete = found[2] == "both" or not fields or (fields["operationType"] == "delete" and found[2] == "before")
    if complete:
        assert _details(Images.REQUIRED, **fields) == details
    else:
        with pytest.raises(ImageMissing, match=r"of shop\.orders .*sluice table recopy") as missing:
            _details(Images.REQUIRED, **fields)
        assert missing.value.table == _A


def test_images_do_not_show_what_the_target_does_not_see() -> None:
    columns = Columns()
    columns.drop("ssn")
    images: dict[str, Any] = {"fullDocument": _IS, "fullDocumentBeforeChange": _WAS}
    details = _details(Images.AVAILABLE, columns, **_UPDATE, **images)
    assert details.before == bson.encode({"_id": 1, "a": 1})
    assert details.after == bson.encode({"_id": 1, "a": 2})


def test_what_the_target_does_not_see_is_in_no_change() -> None:
    """Nor in a dead letter, which contains the change."""
    columns = Columns()
    columns.drop("ssn")
    asked: list[TableName] = []

    def columns_of(name: TableName) -> Columns | None:
        asked.append(name)
        return columns

    mounter = Mounter(_versions(), _route, update_of, columns_of=columns_of)
    description = {"updatedFields": {"ssn": "secret", "a": 1}, "removedFields": [], "truncatedArrays": []}
    insert = _mount(mounter, _event(_ORDERS, 5, fullDocument={"_id": 1, "ssn": "secret", "a": 1}))
    update = _mount(mounter, _event(_ORDERS, 5, operationType="update", updateDescription=description))
    delete = _mount(mounter, _event(_ORDERS, 5, operationType="delete"))
    assert insert.document == bson.encode({"_id": 1, "a": 1})
    assert update.update == bson.encode({**description, "updatedFields": {"a": 1}})
    assert (delete.document, delete.update) == (None, None)
    assert b"secret" not in bson.encode(letter_update("f", insert, "no")) + bson.encode(
        letter_update("f", update, "no")
    )
    assert asked == [_ORDERS]


@pytest.mark.parametrize("table", [_A, None], ids=["by id", "by name"])
def test_the_name_downstream_follows_a_rename_at_its_position(table: TableId | None) -> None:
    mounter = Mounter(_renamed(), _route, update_of)
    names = [
        _mount(mounter, _event(name, seconds, id=table, token=token)).table.name.coll
        for name, seconds, token in [
            (_ORDERS, 8, "8204"),
            (_ORDERS, 9, "8204"),
            (_SALES, 9, "8206"),
            (_SALES, 10, "8207"),
        ]
    ]
    assert names == ["orders", "orders", "sales", "sales"]


@pytest.mark.parametrize(
    "event",
    [
        _event(_ORDERS, 10),
        _event(_SALES, 8),
        _event(_ORDERS, 5, id=TableId("bb" * 16)),
        _event(_ORDERS, 10, id=None),
        _event(TableName("other", "t"), 5),
        _event(_ORDERS, 5, fullDocument={}, documentKey={}, operationType="update"),
        _event(_ORDERS, 5, operationType="sing"),
    ],
    ids=[
        "old name",
        "new name too early",
        "unknown id",
        "name without table",
        "unknown name",
        "no content",
        "no row event",
    ],
)
def test_an_event_that_the_schema_store_cannot_explain_is_an_error(event: bytes) -> None:
    mounter = Mounter(_renamed(), _route, update_of)
    _mount(mounter, _event(_ORDERS, 8))
    _mount(mounter, _event(_SALES, 10))
    with pytest.raises(InvariantError):
        _mount(mounter, event)


def test_a_table_outside_the_filter_is_an_error() -> None:
    with pytest.raises(InvariantError, match="leaves it out") as raised:
        _mount(Mounter(_versions(), lambda _: None, update_of), _event(_ORDERS, 5))
    assert raised.value.table == _A


@pytest.mark.parametrize(
    "event", [_event(_ORDERS, 10), _event(_ORDERS, 5, fullDocument={}, documentKey={}, operationType="update")]
)
def test_what_one_table_says_that_cannot_be_explained_is_that_tables_error(event: bytes) -> None:
    with pytest.raises(InvariantError) as raised:
        _mount(Mounter(_renamed(), _route, update_of), event)
    assert raised.value.table == _A


def test_an_update_in_an_unknown_form_stops_its_table_alone_and_says_what_helps() -> None:
    o = {"$v": 2, "diff": {"u": {"a": 1}, "b": {"data": [{"o": 4, "d": b"x"}]}}}
    ui = Binary(bytes.fromhex(_A), 4)
    entry = bson.encode({"op": "u", "ns": "shop.orders", "ui": ui, "o": o, "o2": {"_id": 7}, "ts": Timestamp(5, 1)})
    with pytest.raises(
        SourceUnsupported, match=r"shop\.orders .*7.*section b'b'.*sluice table recopy.*filter\.tables"
    ) as raised:
        Mounter(_versions(), _route, row_entry.update_of).mount(entry, row_entry.scan(entry))
    assert raised.value.table == _A


def test_the_schema_decides_the_order() -> None:
    for options in (MountOptions(), MountOptions(order_by=OrderBy.ID)):
        mounter = Mounter(_versions(indexes=(_UNIQUE,)), _route, update_of, options)
        assert _mount(mounter, _event(_ORDERS, 5)).table.ordered


def test_the_schema_store_is_asked_once_for_a_table_that_does_not_change_any_more() -> None:
    mounter = Mounter(_renamed(), _route, update_of)
    tables = [mounter.table(scan(_event(_SALES, seconds))) for seconds in range(10, 20)]
    assert len({id(table) for table in tables}) == 1
    mounter._schemas = SchemaVersions()
    assert mounter.table(scan(_event(_SALES, 30))) is tables[0]
