"""Changes from a source's change stream are written to a target, once and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Code, MaxKey, MinKey, ObjectId
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.timestamp import Timestamp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo import ASCENDING, DeleteOne, InsertOne, ReplaceOne, UpdateOne

from changefeed.errors import FencedError
from changefeed.event import RowType
from devstack.mongodb.server import Client
from sink.mongodb.rows.row_writer import MongoRowWriter
from tests.component.sink.mongodb.rows.written_rows import (
    Rows,
    changes_of,
    documents_of,
    inserts_of,
    made,
    permit,
    table_of,
)
from tests.unit.sink.mongodb.rows.update_cases import NAMES, cases


def _type_changes(rows: Rows) -> None:
    rows.insert_one({"_id": 1, "f": 5, "x": 0})
    rows.update_one({"_id": 1}, {"$set": {"x": 1}})
    rows.update_one({"_id": 1}, {"$set": {"f": [1, {"g": 2}]}})
    rows.update_one({"_id": 1}, {"$set": {"f.1.g": 3, "x": 2}})
    rows.update_one({"_id": 1}, {"$set": {"f": {"1": {"g": 4}}}})
    rows.update_one({"_id": 1}, {"$set": {"f.1.g": 5}})


def _arrays(rows: Rows) -> None:
    rows.insert_one({"_id": 1, "a": [1, 2, 3, 4], "o": {"a": [{"b": 0}, {"b": 1}, {"b": 2}]}})
    rows.update_one({"_id": 1}, {"$push": {"a": {"$each": [], "$slice": 2}}})
    rows.update_one({"_id": 1}, [{"$set": {"o.a": [{"b": 0}, {"b": 9}]}}])
    rows.update_one({"_id": 1}, {"$push": {"a": 7}})
    rows.update_one({"_id": 1}, {"$set": {"a.6": "padded"}})


def _odd_names(rows: Rows) -> None:
    rows.insert_one({"_id": 1, "a": {"0": {"b": 1}}, "d.e": 1})
    rows.update_one({"_id": 1}, {"$set": {"a.0.b": 2}})
    rows.update_one({"_id": 1}, {"$set": {"s": "$a", "t": "$$ROOT"}})
    rows.replace_one({"_id": 1}, {"d.e": {"f.g": 1}, "x": 1})


def _names_with_dollars(rows: Rows) -> None:
    rows.insert_one({"_id": 1, "$a": 1, "b": {"$c": 1}})
    rows.update_one({"_id": 1}, {"$set": {"b.d": 2}})
    rows.update_one({"_id": 1}, [{"$set": {"e": "$b.d"}}])
    rows.replace_one({"_id": 1}, {"f": {"$g": 1}})


def _one_document_comes_and_goes(rows: Rows) -> None:
    rows.insert_one({"_id": 1, "v": 1})
    rows.update_one({"_id": 1}, {"$set": {"v": 2}})
    rows.delete_one({"_id": 1})
    rows.insert_one({"_id": 2})
    rows.delete_one({"_id": 2})
    rows.insert_one({"_id": 2, "again": True})
    rows.update_one({"_id": 2}, {"$unset": {"again": 1}, "$set": {"more": 1}})


def _replace_removes_fields(rows: Rows) -> None:
    rows.insert_one({"_id": 1, "a": 1, "b": 2, "c": 3})
    rows.replace_one({"_id": 1}, {"c": 3})


def _equal_numbers(rows: Rows) -> None:
    rows.insert_one({"_id": 1, "v": 1})
    rows.delete_one({"_id": 1.0})
    rows.insert_one({"_id": 1.0, "v": 2})
    rows.update_one({"_id": Int64(1)}, {"$set": {"v": 3}})
    rows.insert_one({"_id": {"k": 1}, "v": 1})
    rows.update_one({"_id": {"k": 1}}, {"$set": {"v": 2}})


def _identities(rows: Rows) -> None:
    for key in (
        None,
        True,
        "s",
        Decimal128("1.50"),
        DatetimeMS(-1),
        DatetimeMS(-(2**45)),
        DatetimeMS(2**48),
        DatetimeMS(-(2**48)),
        Binary(b"x", 5),
        {"a": {"b": 1}},
    ):
        rows.insert_one({"_id": key, "when": DatetimeMS(-(2**45)), "far": DatetimeMS(2**48), "v": Decimal128("NaN")})
        rows.update_one(
            {"_id": key}, {"$set": {"z": DatetimeMS(-(2**45)), "y": DatetimeMS(-5), "x": DatetimeMS(2**48)}}
        )
    rows.delete_one({"_id": None})


def _many(rows: Rows) -> None:
    rows.insert_many([{"_id": number, "v": 0} for number in range(300)])
    rows.bulk_write([UpdateOne({"_id": number}, {"$set": {"v": number}}) for number in range(200)])
    rows.bulk_write([ReplaceOne({"_id": number}, {"w": number}) for number in range(100, 250)])
    rows.bulk_write([DeleteOne({"_id": number}) for number in range(50, 150)])
    rows.bulk_write([InsertOne({"_id": number, "u": 1}) for number in range(60, 70)])


_WORK = [
    _type_changes,
    _arrays,
    _odd_names,
    pytest.param(_names_with_dollars, marks=pytest.mark.since("5.0")),
    _one_document_comes_and_goes,
    _replace_removes_fields,
    _equal_numbers,
    _identities,
    _many,
]


@pytest.mark.parametrize("ordered", [False, True], ids=["free", "ordered"])
@pytest.mark.parametrize("work", _WORK)
def test_the_target_equals_the_source_however_often_changes_are_delivered(
    source: Rows, target: Rows, writer: MongoRowWriter, work: Callable[[Rows], None], ordered: bool
) -> None:
    changes = changes_of(source, work, table_of(source, ordered=ordered))
    expected = documents_of(source)
    writer.write(changes, replay=False)
    assert documents_of(target) == expected
    writer.write(changes, replay=True)
    assert documents_of(target) == expected
    for stop in range(0, len(changes), max(1, len(changes) // 6)):
        target.delete_many({})
        writer.write(changes[:stop], replay=False)
        writer.write(changes, replay=True)
        assert documents_of(target) == expected


def _unique_values_move(rows: Rows) -> None:
    rows.insert_many([{"_id": 1, "u": "one"}, {"_id": 2, "u": "two"}])
    rows.update_one({"_id": 1}, {"$set": {"u": "aside"}})
    rows.update_one({"_id": 2}, {"$set": {"u": "one"}})
    rows.update_one({"_id": 1}, {"$set": {"u": "two"}})
    rows.update_one({"_id": 1}, {"$set": {"u": "aside"}})
    rows.update_one({"_id": 2}, {"$set": {"u": "two"}})
    rows.update_one({"_id": 1}, {"$set": {"u": "one"}})
    rows.delete_one({"_id": 1})
    rows.insert_one({"_id": 3, "u": "one"})


def test_a_unique_value_moves_and_comes_back_in_one_window(source: Rows, target: Rows, writer: MongoRowWriter) -> None:
    for rows in (source, target):
        rows.create_index([("u", ASCENDING)], unique=True)
    changes = changes_of(source, _unique_values_move, table_of(source, ordered=True))
    expected = documents_of(source)
    for stop in range(len(changes) + 1):
        target.delete_many({})
        writer.write(changes[:stop], replay=False)
        writer.write(changes, replay=True)
        assert documents_of(target) == expected


@st.composite
def _unique_histories(draw: st.DrawFn) -> list[tuple[RowType, int, dict[str, Any]]]:
    """Possible histories of a source with a unique value `u`: three documents exchange four values."""
    state: dict[int, dict[str, Any]] = {}
    history: list[tuple[RowType, int, dict[str, Any]]] = []
    for number in range(draw(st.integers(4, 14))):
        key = draw(st.sampled_from([1, 2, 3]))
        free = sorted(set("abcd") - {document["u"] for other, document in state.items() if other != key})
        content = {"u": draw(st.sampled_from(free)), "n": number}
        kinds = [RowType.UPDATE, RowType.UPDATE, RowType.REPLACE, RowType.DELETE] if key in state else [RowType.INSERT]
        kind = draw(st.sampled_from(kinds))
        if kind is RowType.DELETE:
            del state[key]
        else:
            state[key] = content
        history.append((kind, key, content))
    return history


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=_unique_histories(), data=st.data())
def test_unique_values_end_right_from_every_state_that_redelivery_begins_with(
    target: Rows, writer: MongoRowWriter, history: list[tuple[RowType, int, dict[str, Any]]], data: st.DataObject
) -> None:
    target.create_index([("u", ASCENDING)], unique=True)
    target.delete_many({})
    table = table_of(target, ordered=True)
    changes = [
        made(table, kind, key, None, {"updatedFields": content})
        if kind is RowType.UPDATE
        else made(table, kind, key, content if kind is not RowType.DELETE else None)
        for kind, key, content in history
    ]
    writer.write(changes, replay=False)
    expected = documents_of(target)
    target.delete_many({})
    checkpoint = data.draw(st.integers(0, len(changes)))
    writer.write(changes[: data.draw(st.integers(checkpoint, len(changes)))], replay=False)
    writer.write(changes[checkpoint:], replay=True)
    assert documents_of(target) == expected


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_updates_end_in_equality(target: Rows, writer: MongoRowWriter, data: st.DataObject) -> None:
    case = data.draw(cases(_storable_names(target)))
    target.delete_many({})
    target.insert_one(case.before)
    update = made(table_of(target), RowType.UPDATE, 1)._replace(update=case.description)
    writer.write([update], replay=False)
    assert documents_of(target) == [bson.encode(case.after)]


def _storable_names(rows: Rows) -> tuple[str, ...]:
    dollars = rows.database.client.server_info()["versionArray"][0] >= 5
    return tuple(name for name in NAMES if dollars or not name.startswith("$"))


class Turns:
    shared = True

    def __init__(self) -> None:
        self.busy: list[float] = []

    def rest(self, busy_seconds: float) -> None:
        self.busy.append(busy_seconds)


def test_a_writer_rests_after_each_command_and_says_what_small_writes_waited_for(target: Rows) -> None:
    turns = Turns()
    busy, writer = turns.busy, MongoRowWriter(target.database.client, permit=permit, turns=turns)
    table, run = table_of(target), writer.begin(lambda _: False)
    small = run.prepare(inserts_of(table, range(3)), replay=False)()
    assert (len(busy), small.waits) == (1, 1), "it waits for the majority itself"
    assert small.waited >= busy[0] > 0
    large = run.prepare(inserts_of(table, range(3, 300)), replay=False)()
    assert len(busy) > 2, "its commands wait together, by one that costs nothing"
    assert large.waits >= 1
    assert large.waited > 0


@pytest.mark.since("5.0")  # earlier servers store no name that begins with a dollar
def test_a_replace_makes_room_where_its_id_stands_under_another_shard_key(target: Rows, writer: MongoRowWriter) -> None:
    target.insert_one({"_id": 1, "region": "old"})
    document = {"_id": 1, "region": "new", "$v": 1}
    key = bson.encode({"region": "new", "_id": 1})
    change = made(table_of(target, shard_key=("region",)), RowType.REPLACE, 1)._replace(
        key=key, document=bson.encode(document)
    )
    writer.write([change], replay=True)
    assert list(target.find()) == [document]


def test_documents_of_16_mb_are_written(target: Rows, writer: MongoRowWriter) -> None:
    blob = {"blob": "x" * (16 * 1024 * 1024 - 64)}
    table = table_of(target)
    changes = [made(table, RowType.INSERT, key, blob) for key in range(4)]
    changes += [made(table, RowType.REPLACE, key, blob) for key in (0, 9)]
    writer.write(changes, replay=False)
    assert target.count_documents({}) == 5


@pytest.mark.parametrize("zero", [False, True])
def test_documents_of_16_mb_with_a_long_id_are_written_however_they_come(
    target: Rows, writer: MongoRowWriter, zero: bool
) -> None:
    key, table = "k" * 9_000, table_of(target)
    fields = {"t": Timestamp(0, 0)} if zero else {}
    blob = {**fields, "blob": b"x" * (16 * 1024 * 1024 - 10_000)}
    other = {"blob": b"y" * (16 * 1024 * 1024 - 10_000), **fields}
    for _ in range(2):
        writer.write([made(table, RowType.INSERT, key, blob)], replay=True)
        writer.write([made(table, RowType.REPLACE, key, other)], replay=True)
        assert target.find_one() == {"_id": key, **other}
    writer.write([made(table, RowType.UPDATE, key, update={"updatedFields": blob})], replay=False)
    cut = {"updatedFields": {"blob": other["blob"], "a.b": 1}, "disambiguatedPaths": {"a.b": ["a.b"]}}
    writer.write([made(table, RowType.UPDATE, key, update=cut)], replay=False)
    assert target.find_one() == {"_id": key, **other, "a.b": 1}
    writer.write([made(table, RowType.DELETE, key)], replay=False)
    assert target.count_documents({}) == 0


def test_many_tables_share_commands(target_client: Client, database: str, writer: MongoRowWriter) -> None:
    changes = []
    for number in range(30):
        rows = target_client[database][f"rows{number}"]
        rows.insert_one({"_id": 1})
        table = table_of(rows)
        changes += [
            made(table, RowType.INSERT, 2, {"v": number}),
            made(table, RowType.UPDATE, 2, update={"updatedFields": {"w": 1}}),
            made(table, RowType.DELETE, 1),
        ]
    writer.write(changes, replay=False)
    for number in range(30):
        assert list(target_client[database][f"rows{number}"].find()) == [{"_id": 2, "v": number, "w": 1}]


def test_nothing_is_written_when_the_permit_is_over(target: Rows) -> None:
    permits = iter([10.0, 0.0])
    writer = MongoRowWriter(target.database.client, permit=lambda: next(permits))
    with pytest.raises(FencedError):
        writer.write([made(table_of(target), RowType.INSERT, 1, {})], replay=False)
    assert target.count_documents({}) == 0


_IDS: list[Any] = [
    *(None, True, MinKey(), MaxKey(), "", "$x", "k" * 9_000, Timestamp(0, 0), Binary(b"a" * 16, 4), ObjectId(), 7, 2.5),
    *(Int64(2**60), Decimal128("1.5"), float("inf"), float("nan"), DatetimeMS(2**60), Code("x")),
    *({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": [1, "x"]}, {"a": MaxKey()}, {}),
]


def test_rows_of_any_id_are_deleted_together_and_no_others(source: Rows, target: Rows, writer: MongoRowWriter) -> None:
    kept = [8, "y", 7.25, {"a": 1}]
    target.insert_many([{"_id": key} for key in (*_IDS, *kept)])
    deletes = [made(table_of(source), RowType.DELETE, key) for key in (*_IDS, "gone")]
    writer.write(deletes, replay=False)
    assert [row["_id"] for row in target.find()] == kept
