"""Updates deep in documents, as the source's oplog has them, make the target's documents equal byte by byte."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import bson
import pytest
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from pymongo import ASCENDING

from changefeed.bson_bytes import ARRAY, DOCUMENT, document_of, element, elements, fields_of
from changefeed.errors import Divergence
from changefeed.event import RowType
from devstack.mongodb.server import Client
from processor.task.rows.folding import fold
from sink.mongodb.rows.row_writer import MongoRowWriter
from sink.row import RowChange, TargetTable
from source.oplog.row_entry import scan, update_of
from tests.component.sink.mongodb.rows.written_rows import RAW, Rows, documents_of, made, table_of
from tests.component.source.odd_texts import no_utf8

Work = Callable[[Rows], object]


def logged(source: Rows, work: Work, table: TargetTable) -> list[RowChange]:
    work(source)
    oplog = source.database.client["local"].get_collection("oplog.rs", codec_options=RAW)
    changes: list[RowChange] = []
    for raw in oplog.find({"ns": f"{source.database.name}.{source.name}"}).sort("$natural", ASCENDING):
        entry = bytes(raw.raw)  # type: ignore[attr-defined]
        header = scan(entry)
        whole = entry[header.full_at : header.full_end] or None
        update = update_of(entry, header) if header.type == b"update" else None
        kind = RowType(header.type.decode())
        changes.append(RowChange(table, kind, header.key, whole, update, header.time, header.token))
    return changes


def nested(depth: int, innermost: dict[str, Any], *, arrays: bool = False) -> dict[str, Any]:
    value: Any = innermost
    for _ in range(depth):
        value = {"n": 0, "c": [value], "z": "end"} if arrays else {"n": 0, "c": value, "z": "end"}
    return {"_id": 1, "before": 1, **value}


def _path(depth: int, *, arrays: bool = False) -> str:
    return ".".join([("c.0" if arrays else "c")] * depth)


def _grows(depth: int, *, arrays: bool = False) -> Work:
    path = _path(depth, arrays=arrays)

    def work(rows: Rows) -> None:
        rows.insert_one(nested(depth, {"x": 1, "list": [1, 2, 3, {"y": 1}]}, arrays=arrays))
        rows.update_one({"_id": 1}, {"$set": {f"{path}.new": {"deep": [1]}, "before": 2}})
        rows.update_one({"_id": 1}, {"$set": {f"{path}.b": 2}, "$unset": {f"{path}.x": 1}})
        rows.update_one({"_id": 1}, {"$push": {f"{path}.list": {"$each": [], "$slice": 2}}})
        rows.update_one({"_id": 1}, {"$set": {f"{path}.list.4.k": 1, f"{path}.a": 1}})
        rows.update_one({"_id": 1}, {"$unset": {f"{path}.new": 1}})
        rows.update_one({"_id": 1}, {"$set": {f"{path}.new": 7, f"{path}.list.4.j": 1}})

    return work


_CASES = [
    pytest.param(_grows(8, arrays=True), id="8 arrays"),
    pytest.param(_grows(9, arrays=True), id="9 arrays"),
    pytest.param(_grows(17), id="17 documents"),
    pytest.param(_grows(18), id="18 documents"),
    pytest.param(_grows(12, arrays=True), id="12 arrays"),
    pytest.param(_grows(70, arrays=True), id="70 arrays"),
    pytest.param(_grows(27), id="27 documents"),
    pytest.param(_grows(150), id="150 documents"),
]


def _is_exact(
    expected: object, target: Rows, writer: MongoRowWriter, changes: Sequence[RowChange], at_once: Sequence[RowChange]
) -> None:
    """One by one, again from each on, and at once."""
    for change in changes:
        writer.write([change], replay=False)
    assert documents_of(target) == expected
    for begin in range(len(changes)):
        writer.write(changes[begin:], replay=True)
        assert documents_of(target) == expected
    target.delete_many({})
    writer.write(at_once, replay=False)
    assert documents_of(target) == expected


@pytest.mark.parametrize("ordered", [False, True], ids=["free", "ordered"])
@pytest.mark.parametrize("work", _CASES)
def test_a_deep_update_is_exact_however_often_it_is_delivered(
    source: Rows, target: Rows, writer: MongoRowWriter, work: Work, *, ordered: bool
) -> None:
    changes = logged(source, work, table_of(source, ordered=ordered))
    _is_exact(documents_of(source), target, writer, changes, changes)


def _deep_update(table: TargetTable, depth: int, **sets: Any) -> RowChange:
    """As 5.0 tells of new fields: they are removed first."""
    fields = {f"{_path(depth)}.{name}": value for name, value in sets.items()}
    return made(table, RowType.UPDATE, 1, update={"updatedFields": fields, "removedFields": list(fields)})


def test_a_row_that_is_not_as_deep_has_diverged(source: Rows, target: Rows, writer: MongoRowWriter) -> None:
    target.insert_one({"_id": 1, "c": 5})
    change = _deep_update(table_of(source), 40, new=1)
    with pytest.raises(Divergence, match="Cannot create field"):
        writer.write([change], replay=False)
    target.delete_many({})
    with pytest.raises(Divergence, match="missing"):
        writer.write([change], replay=False)


def test_a_replayed_deep_update_that_does_not_fit_is_explained_by_a_later_change(
    source: Rows, target: Rows, writer: MongoRowWriter
) -> None:
    table = table_of(source)
    target.insert_one({"_id": 1, "c": 5, "x": 1})
    deep = made(
        table,
        RowType.UPDATE,
        1,
        update={
            "updatedFields": {"x": 2, f"{_path(40)}.l": 1},
            "truncatedArrays": [{"field": f"{_path(40)}.m", "newSize": 1}],
        },
    )
    result = writer.write([deep, made(table, RowType.UPDATE, 1, update={"updatedFields": {"c": 5}})], replay=True)
    assert result.tally.skipped == 1
    assert target.find_one({}) == {"_id": 1, "c": 5, "x": 2}
    with pytest.raises(Divergence):
        writer.write([deep], replay=True)


def test_deep_updates_exchange_unique_values(source: Rows, target: Rows, writer: MongoRowWriter) -> None:
    """Each alone is refused; as it is in a replay, when the target is ahead."""
    table, at = table_of(source), f"{_path(30)}.u"
    target.create_index(at, unique=True)
    for key, value in ((1, "a"), (2, "b")):
        target.insert_one({**nested(30, {"u": value}), "_id": key})
    cut = {"truncatedArrays": [{"field": f"{_path(30)}.none", "newSize": 0}]}
    changes = [
        made(table, RowType.UPDATE, key, update={"updatedFields": {at: value}, **cut})
        for key, value in ((1, "b"), (2, "a"))
    ]
    for key in (1, 2):
        target.update_one({"_id": key}, {"$set": {f"{_path(30)}.none": []}})
    writer.write(changes, replay=True)
    assert [_at(document, at) for document in target.find(sort=[("_id", 1)])] == ["b", "a"]


def _at(document: Any, path: str) -> Any:
    for name in path.split("."):
        document = document[name]
    return document


def test_an_update_that_is_too_large_for_a_statement_is_applied(
    source: Rows, target: Rows, writer: MongoRowWriter
) -> None:
    target.insert_one({"_id": 1, "l": [1, 2]})
    value = "x" * ((16 << 20) - 60)
    update = {"updatedFields": {"v": value}, "truncatedArrays": [{"field": "l", "newSize": 1}]}
    update |= {"removedFields": [f"{number:0100}" for number in range(200)]}
    writer.write([made(table_of(source), RowType.UPDATE, 1, update=update)], replay=False)
    assert target.find_one({}) == {"_id": 1, "l": [1], "v": value}


@pytest.mark.parametrize("capped", [False, True], ids=["in a transaction", "without one"])
def test_what_another_client_writes_meanwhile_stays(
    source: Rows, target: Rows, target_uri: str, writer: MongoRowWriter, *, capped: bool
) -> None:
    """By the number of its increments: a row that was replaced over one of them would lack it."""
    if capped:
        target.database.create_collection(target.name, capped=True, size=1 << 20)
    target.insert_one({**nested(40, {"n": Int64(0), "none": []}), "other": Int64(0)})
    done, counted = threading.Event(), [0]

    def increment() -> None:
        with Client(target_uri) as client:
            rows = client[target.database.name][target.name]
            while not done.wait(0.005):
                rows.update_one({"_id": 1}, {"$inc": {"other": Int64(1)}})
                counted[0] += 1

    cut = {"truncatedArrays": [{"field": f"{_path(40)}.none", "newSize": 0}]}
    beside = threading.Thread(target=increment)
    beside.start()
    for number in range(1, 6):
        update = {"updatedFields": {f"{_path(40)}.n": Int64(number)}, **cut}
        writer.write([made(table_of(source), RowType.UPDATE, 1, update=update)], replay=False)
    done.set()
    beside.join()
    document = target.find_one({})
    assert document is not None
    assert document["other"] == counted[0]
    assert _at(document, f"{_path(40)}.n") == 5


def test_a_field_that_the_source_moved_to_the_end_moves_among_new_ones(
    source: Rows, target: Rows, writer: MongoRowWriter
) -> None:
    """The oplog tells of both in the same way. They come in one command, which is sent again, though one row alone has the moved field."""

    def work(rows: Rows) -> None:
        rows.insert_many([{"_id": key, "a": 1, "b": {"c": 1}} for key in range(1, 8)])
        for key in range(1, 8):
            rows.update_one({"_id": key}, {"$set": {"x": key}})
            rows.update_one({"_id": key}, {"$set": {"b.new": key}, "$inc": {"x": 1}})
        moved = {"$replaceWith": {"_id": "$_id", "b": "$b", "x": "$x", "a": "$a"}}
        rows.update_one({"_id": 4}, [moved, {"$set": {"y": 1}}])
        rows.update_one({"_id": 4}, {"$set": {"a": 2}})
        rows.update_one({"_id": 5}, {"$set": {"y": 1}})

    changes = logged(source, work, table_of(source))
    expected = documents_of(source)
    inserts, updates = changes[:7], changes[7:]
    for replay in (False, True):
        writer.write(inserts, replay=replay)
        result = writer.write(updates, replay=replay)
        assert documents_of(target) == expected
        assert not result.tally.repaired


def _odd_values() -> RawBSONDocument:
    """A text that is not UTF-8, which no driver decodes, and values of types that it would encode as others: a symbol, undefined, a pointer, and
    a regular expression with an option of its own.
    """
    deprecated = [b"\x0es\0\3\0\0\0ab\0", b"\x06u\0", b"\x0cp\0\2\0\0\0c\0" + bytes(range(12)), b"\x0bg\0a\0g\0"]
    return RawBSONDocument(document_of([*deprecated, *fields_of(bytes(no_utf8({"t": "$caf?"}).raw)).values()]), RAW)


def _updated(rows: Rows, change: bytes) -> None:
    statement = [element(DOCUMENT, b"q", bson.encode({"_id": 1})), change]
    rows.database.command("update", rows.name, updates=[RawBSONDocument(document_of(statement), RAW)])


def _operators(*operators: tuple[bytes, bytes]) -> bytes:
    return element(DOCUMENT, b"u", document_of([element(DOCUMENT, name, fields) for name, fields in operators]))


@pytest.mark.parametrize("ordered", [False, True], ids=["free", "ordered"])
def test_values_that_a_driver_cannot_decode_or_would_change_arrive_as_they_are(
    source: Rows, target: Rows, writer: MongoRowWriter, *, ordered: bool
) -> None:
    values = bytes(_odd_values().raw)
    again = document_of([element(kind, b"again_" + name, values[at:end]) for name, kind, at, end in elements(values)])
    in_list = document_of([element(DOCUMENT, b"l.2", values), element(ARRAY, b"l.0", bson.encode({"0": 1}))])
    named = document_of([element(DOCUMENT, b"$v", values), *fields_of(values).values()])

    def work(rows: Rows) -> None:
        rows.insert_one({"_id": 1, "n": 1, "l": [1, 2, 3, 4], "g": 1})
        _updated(rows, _operators((b"$set", values)))
        _updated(rows, _operators((b"$set", again), (b"$unset", bson.encode({"n": 1}))))
        rows.update_one({"_id": 1}, {"$push": {"l": {"$each": [], "$slice": 3}}})
        _updated(rows, _operators((b"$set", in_list)))
        moved = bson.encode({"0": {"$replaceWith": {"$mergeObjects": [{"_id": 1, "new": 1}, "$$ROOT"]}}})
        _updated(rows, element(ARRAY, b"u", moved))
        appended = document_of([element(DOCUMENT, b"$literal", document_of([*fields_of(again).values()][::-1]))])
        merged = document_of([element(2, b"0", b"\7\0\0\0$$ROOT\0"), element(DOCUMENT, b"1", appended)])
        stage = document_of(
            [element(DOCUMENT, b"$replaceWith", document_of([element(ARRAY, b"$mergeObjects", merged)]))]
        )
        _updated(rows, _operators((b"$unset", bson.encode(dict.fromkeys(("again_t", "again_u"), 1)))))
        _updated(rows, element(ARRAY, b"u", document_of([element(DOCUMENT, b"0", stage)])))
        _updated(rows, element(DOCUMENT, b"u", values))
        if rows.database.client.server_info()["versionArray"][0] >= 5:
            literal = document_of([element(DOCUMENT, b"$literal", named)])
            stage = document_of([element(DOCUMENT, b"$replaceWith", literal)])
            _updated(rows, element(ARRAY, b"u", document_of([element(DOCUMENT, b"0", stage)])))

    changes = logged(source, work, table_of(source, ordered=ordered))
    _is_exact(documents_of(source), target, writer, changes, fold(changes))
