"""Changes from a source's change stream are written to a target, once and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, TypeAlias

import bson
import pytest
from bson.binary import Binary
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo import ASCENDING, DeleteOne, InsertOne, ReplaceOne, UpdateOne
from pymongo.collection import Collection

from changefeed.cluster_time import ClusterTime
from changefeed.errors import Divergence, FencedError, RowRejected
from changefeed.event import RowType
from changefeed.table import TableId, TableName
from devstack.mongodb.server import Client
from sink.mongodb.letters.open_letters import LetterBox
from sink.mongodb.rows.row_writer import MongoRowWriter, RowWriterOptions
from sink.row import FetchRow, RowChange, SourceRow, TargetTable
from tests.unit.sink.mongodb.rows.update_cases import NAMES, cases

Rows: TypeAlias = Collection[dict[str, Any]]
_TIMES = count(5)
_RAW = CodecOptions(RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)


def _permit() -> float:
    return 30.0


@pytest.fixture
def writer(target_uri: str) -> Iterator[MongoRowWriter]:
    writer = MongoRowWriter(Client(target_uri), permit=_permit)
    yield writer
    writer.close()


@pytest.fixture
def source(source_client: Client, database: str) -> Rows:
    source_client[database].create_collection("rows")
    return source_client[database]["rows"]


@pytest.fixture
def target(target_client: Client, database: str) -> Rows:
    return target_client[database]["rows"]


def _table(rows: Rows, **options: Any) -> TargetTable:
    name = TableName(rows.database.name, rows.name)
    return TargetTable(id=TableId("ab" * 16), source=name, name=name, **options)


def _changes(source: Rows, work: Callable[[Rows], object], table: TargetTable) -> list[RowChange]:
    raw = source.with_options(codec_options=_RAW)
    expanded = source.database.client.server_info()["versionArray"][0] >= 6 or None
    with raw.watch(show_expanded_events=expanded, max_await_time_ms=100) as stream:
        work(source)
        source.insert_one({"_id": "the end"})
        changes: list[RowChange] = []
        for event in stream:
            if event["documentKey"]["_id"] == "the end":
                return changes
            changes.append(_change(event, table))
    raise AssertionError("the stream ended before the work did")


def _change(event: Any, table: TargetTable) -> RowChange:
    def raw(name: str) -> bytes | None:
        return event[name].raw if event.get(name) is not None else None

    time = ClusterTime.from_bson(event["clusterTime"]).to_int()
    token = event["_id"]["_data"].encode()
    key = event["documentKey"].raw
    return RowChange(
        table, RowType(event["operationType"]), key, raw("fullDocument"), raw("updateDescription"), time, token
    )


def _made(
    table: TargetTable,
    kind: RowType,
    key: Any,
    document: dict[str, Any] | None = None,
    update: dict[str, Any] | None = None,
) -> RowChange:
    return RowChange(
        table,
        kind,
        bson.encode({"_id": key}),
        bson.encode({"_id": key, **document}) if document is not None else None,
        bson.encode({"updatedFields": {}, "removedFields": [], "truncatedArrays": [], **update}) if update else None,
        next(_TIMES),
        b"82",
    )


def _documents(rows: Rows) -> list[bytes]:
    raw = rows.with_options(codec_options=_RAW)
    return sorted(bytes(document.raw) for document in raw.find({"_id": {"$ne": "the end"}}))


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
    changes = _changes(source, work, _table(source, ordered=ordered))
    expected = _documents(source)
    writer.write(changes, replay=False)
    assert _documents(target) == expected
    writer.write(changes, replay=True)
    assert _documents(target) == expected
    for stop in range(0, len(changes), max(1, len(changes) // 6)):
        target.delete_many({})
        writer.write(changes[:stop], replay=False)
        writer.write(changes, replay=True)
        assert _documents(target) == expected


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
    changes = _changes(source, _unique_values_move, _table(source, ordered=True))
    expected = _documents(source)
    for stop in range(len(changes) + 1):
        target.delete_many({})
        writer.write(changes[:stop], replay=False)
        writer.write(changes, replay=True)
        assert _documents(target) == expected


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
    table = _table(target, ordered=True)
    changes = [
        _made(table, kind, key, None, {"updatedFields": content})
        if kind is RowType.UPDATE
        else _made(table, kind, key, content if kind is not RowType.DELETE else None)
        for kind, key, content in history
    ]
    writer.write(changes, replay=False)
    expected = _documents(target)
    target.delete_many({})
    checkpoint = data.draw(st.integers(0, len(changes)))
    writer.write(changes[: data.draw(st.integers(checkpoint, len(changes)))], replay=False)
    writer.write(changes[checkpoint:], replay=True)
    assert _documents(target) == expected


def test_a_refused_unique_value_names_the_row(target: Rows, writer: MongoRowWriter) -> None:
    target.create_index([("u", ASCENDING)], unique=True)
    target.insert_one({"_id": "foreign", "u": 1})
    with pytest.raises(RowRejected, match=r"insert of .*'_id': 7.* at 0\.\d+/82"):
        writer.write([_made(_table(target, ordered=True), RowType.INSERT, 7, {"u": 1})], replay=False)


def test_what_the_target_refuses_goes_to_the_dead_letters_and_the_rest_in(target: Rows, target_uri: str) -> None:
    target.create_index([("u", ASCENDING)], unique=True)
    target.insert_one({"_id": "foreign", "u": 1})
    letters = TableName(target.database.name, "letters")
    table = _table(target, ordered=True)
    writer = MongoRowWriter(
        Client(target_uri),
        permit=_permit,
        options=RowWriterOptions(letters=LetterBox(collection=letters, changefeed="feed")),
    )
    changes = [_made(table, RowType.INSERT, number, {"u": number}) for number in range(3)]
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
    table = _table(target)
    writer = MongoRowWriter(
        Client(target_uri),
        permit=_permit,
        options=RowWriterOptions(letters=LetterBox(collection=letters, changefeed="feed")),
    )
    changes = [_made(table, RowType.INSERT, number, {"v": number}) for number in range(9)]
    changes[4] = _made(table, RowType.INSERT, 4, {"v": "x" * (17 << 20)})
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
        permit=_permit,
        options=RowWriterOptions(letters=LetterBox(collection=letters, changefeed="feed")),
    )
    with pytest.raises(RowRejected, match="no database"):
        writer.write([_made(table, RowType.INSERT, number, {}) for number in range(3)], replay=False)
    writer.close()
    assert target.database["letters"].count_documents({}) == 0


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_updates_end_in_equality(target: Rows, writer: MongoRowWriter, data: st.DataObject) -> None:
    case = data.draw(cases(_storable_names(target)))
    target.delete_many({})
    target.insert_one(case.before)
    update = _made(_table(target), RowType.UPDATE, 1)._replace(update=case.description)
    writer.write([update], replay=False)
    assert _documents(target) == [bson.encode(case.after)]


def _storable_names(rows: Rows) -> tuple[str, ...]:
    dollars = rows.database.client.server_info()["versionArray"][0] >= 5
    return tuple(name for name in NAMES if dollars or not name.startswith("$"))


_READ = ClusterTime(9, 1)


def _fetch_from(there: Mapping[Any, bytes]) -> FetchRow:
    return lambda change: SourceRow(there.get(bson.decode(change.key)["_id"]), _READ)


def _updates(table: TargetTable, keys: Sequence[int]) -> list[RowChange]:
    return [_made(table, RowType.UPDATE, key, update={"updatedFields": {"v": 1}}) for key in keys]


def _inserts(table: TargetTable, keys: Sequence[int]) -> list[RowChange]:
    return [_made(table, RowType.INSERT, key, {"_id": key}) for key in keys]


@pytest.mark.parametrize("count", [20, 200], ids=["joined", "alone"])
def test_an_update_without_its_document_is_divergence(target: Rows, writer: MongoRowWriter, count: int) -> None:
    target.insert_many([{"_id": key} for key in range(count) if key != 13])
    with pytest.raises(Divergence, match="'_id': 13"):
        writer.write(_updates(_table(target), range(count)), replay=False)


def test_a_row_of_another_spelling_of_its_key_is_repaired_as_the_source_spells_it(
    target: Rows, writer: MongoRowWriter
) -> None:
    """Under a collation, the key of a change finds the source's row that took its place under another spelling."""
    target.database.create_collection(target.name, collation={"locale": "en", "strength": 2})
    target.insert_one({"_id": "one", "v": 5})
    change = _made(_table(target), RowType.REPLACE, "one", document={"_id": "ONE", "v": 6})
    assert not writer.write([change], replay=False).rejected
    assert list(target.find()) == [{"_id": "ONE", "v": 6}]


@pytest.mark.parametrize("count", [20, 200], ids=["joined", "alone"])
def test_divergence_is_repaired_from_the_source(target: Rows, target_uri: str, count: int) -> None:
    """One document is missing at the target, one is missing at both sides, one has another shape."""
    there = {13: bson.encode({"_id": 13, "repaired": True}), 15: bson.encode({"_id": 15, "repaired": True})}
    target.insert_many([{"_id": key} for key in range(count) if key not in (13, 14, 15)])
    target.insert_one({"_id": 15, "v": 5})
    table = _table(target)
    writer = MongoRowWriter(Client(target_uri), permit=_permit, fetch=_fetch_from(there))
    deep = _made(table, RowType.UPDATE, 15, update={"updatedFields": {"v.deep": 1}})
    changes = [deep if bson.decode(change.key)["_id"] == 15 else change for change in _updates(table, range(count))]
    result = writer.write(changes, replay=False)
    writer.close()
    assert sorted(bson.decode(deviation.change.key)["_id"] for deviation in result.divergences) == [13, 14, 15]
    assert target.count_documents({"v": 1}) == count - 3
    assert target.count_documents({"repaired": True}) == 2
    assert target.find_one({"_id": 14}) is None


def _deletes(table: TargetTable, keys: Sequence[int]) -> list[RowChange]:
    return [_made(table, RowType.DELETE, key) for key in keys]


@pytest.mark.parametrize("count", [20, 200], ids=["joined", "alone"])
def test_a_replayed_update_of_a_row_that_a_later_change_deletes_is_skipped_and_counted(
    target: Rows, writer: MongoRowWriter, count: int
) -> None:
    target.insert_many([{"_id": key} for key in range(count, 2 * count)])
    table = _table(target)
    run = writer.begin(lambda _: False)
    result = run.prepare(_updates(table, range(2 * count)), replay=True)()
    assert result.tally.skipped == count
    run.prepare(_deletes(table, range(count)), replay=True)()
    assert not run.settle().divergences
    assert target.count_documents({"v": 1}) == count


@pytest.mark.parametrize("count", [20, 200], ids=["joined", "alone"])
def test_a_replayed_update_of_a_row_that_nothing_deletes_is_divergence(
    target: Rows, writer: MongoRowWriter, count: int
) -> None:
    target.insert_many([{"_id": key} for key in range(count) if key != 13])
    with pytest.raises(Divergence, match=r"'_id': 13}.*missing"):
        writer.write(_updates(_table(target), range(count)), replay=True)


def test_a_replayed_update_of_a_row_of_another_shape_is_divergence(target: Rows, writer: MongoRowWriter) -> None:
    """No other change of the row explains its shape."""
    target.insert_many([{"_id": 1, "a": 7}, {"_id": 2, "a": [7]}])
    table = _table(target)
    changes = [
        _made(table, RowType.UPDATE, 1, update={"updatedFields": {"a.b": 1, "x": 1}}),
        _made(table, RowType.UPDATE, 2, update={"truncatedArrays": [{"field": "a", "newSize": 1}]}),
        _made(table, RowType.UPDATE, 1, update={"updatedFields": {"x": 2}}),
    ]
    with pytest.raises(Divergence, match="'_id': 1}") as raised:
        writer.write(changes, replay=True)
    assert "'_id': 2}" not in str(raised.value)
    assert target.find_one({"_id": 1}) == {"_id": 1, "a": 7, "x": 2}


def test_a_writer_rests_after_each_command_and_says_what_small_writes_waited_for(target: Rows, target_uri: str) -> None:
    busy: list[float] = []
    writer = MongoRowWriter(Client(target_uri), permit=_permit, rest=busy.append)
    table, run = _table(target), writer.begin(lambda _: False)
    small = run.prepare(_inserts(table, range(3)), replay=False)()
    assert (len(busy), small.waits) == (1, 1), "it waits for the majority itself"
    assert small.waited >= busy[0] > 0
    large = run.prepare(_inserts(table, range(3, 300)), replay=False)()
    assert (len(busy) > 2, large.waits) == (True, 1), "its commands wait together, by one that costs nothing"
    assert large.waited > 0
    writer.close()


def test_what_may_be_explained_behind_the_run_is_unsettled(target: Rows, writer: MongoRowWriter) -> None:
    table = _table(target)
    result = writer.begin(lambda _: True).prepare(_updates(table, [1]), replay=True)()
    assert result.tally.skipped == 1
    run = writer.begin(lambda _: True)
    run.prepare(_updates(table, [1]), replay=True)()
    assert run.settle().unsettled == {table.id}


@pytest.mark.parametrize("repairs", [True, False])
def test_a_row_that_is_as_at_the_source_by_now_is_no_divergence(target: Rows, target_uri: str, repairs: bool) -> None:
    """One row was repaired by hand; the source has deleted the other since."""
    mended = {"_id": 2, "a": 8}
    target.insert_one(mended)
    there = {2: bson.encode(mended)}
    writer = MongoRowWriter(
        Client(target_uri),
        permit=_permit,
        fetch=_fetch_from(there),
        repairs=repairs,
    )
    table = _table(target)
    changes = [*_updates(table, [1]), _made(table, RowType.UPDATE, 2, update={"updatedFields": {"a.b": 1}})]
    result = writer.write(changes, replay=True)
    writer.close()
    assert (result.tally.skipped, result.divergences) == (2, [])
    assert list(target.find()) == [mended]


def test_a_replayed_row_that_nothing_explains_is_repaired(target: Rows, target_uri: str) -> None:
    there = {key: bson.encode({"_id": key, "v": {"deep": 1}}) for key in (1, 2)}
    target.insert_one({"_id": 2, "v": 5})
    table = _table(target)
    writer = MongoRowWriter(Client(target_uri), permit=_permit, fetch=_fetch_from(there))
    changes = [_made(table, RowType.UPDATE, key, update={"updatedFields": {"v.deep": 1}}) for key in (1, 2)]
    result = writer.write(changes, replay=True)
    writer.close()
    assert sorted(bson.decode(deviation.change.key)["_id"] for deviation in result.divergences) == [1, 2]
    assert _documents(target) == [there[1], there[2]]


def test_a_repaired_row_waits_for_the_value_that_another_gives_up_later(target: Rows, target_uri: str) -> None:
    """When 1 was read at the source, 2 had given up `u` and 1 had taken it. The window that repairs 1 ends before these changes."""
    target.create_index("u", unique=True)
    target.insert_one({"_id": 2, "u": "wanted"})
    table = _table(target, ordered=True)
    fetch = _fetch_from({1: bson.encode({"_id": 1, "u": "wanted", "n": 1})})
    lost = _made(table, RowType.UPDATE, 1, update={"updatedFields": {"n": 1}})
    later = [
        _made(table, RowType.UPDATE, 2, update={"updatedFields": {"u": "other"}}),
        _made(table, RowType.UPDATE, 1, update={"updatedFields": {"u": "wanted"}}),
    ]
    with Client(target_uri) as client:
        writer = MongoRowWriter(client, permit=_permit, fetch=fetch)
        result = writer.write([lost], replay=False)
        assert result.unsettled == {table.id}
        assert result.ahead == {table.id: _READ}
        assert not writer.write([lost, *later], replay=True).unsettled
    assert list(target.find(sort=[("_id", 1)])) == [{"_id": 1, "u": "wanted", "n": 1}, {"_id": 2, "u": "other"}]


def test_a_repaired_row_whose_value_a_stranger_has_is_rejected_when_all_is_replayed(
    target: Rows, target_uri: str
) -> None:
    target.create_index("u", unique=True)
    target.insert_one({"_id": "stranger", "u": "wanted"})
    fetch = _fetch_from({1: bson.encode({"_id": 1, "u": "wanted"})})
    lost = _made(_table(target, ordered=True), RowType.UPDATE, 1, update={"updatedFields": {"n": 1}})
    with Client(target_uri) as client, pytest.raises(RowRejected, match="wanted"):
        MongoRowWriter(client, permit=_permit, fetch=fetch).write([lost], replay=True)


def test_a_row_whose_table_is_gone_from_the_source_is_left_as_it_is(target: Rows, target_uri: str) -> None:
    target.insert_one({"_id": 1, "a": 5})
    misfit = _made(_table(target), RowType.UPDATE, 1, update={"updatedFields": {"a.b": 1}})
    with Client(target_uri) as client:
        writer = MongoRowWriter(client, permit=_permit, fetch=lambda _: None)
        [deviation] = writer.write([misfit], replay=False).divergences
        assert "the source has dropped its table" in deviation.reason
        assert not writer.write([misfit], replay=True).divergences
    assert target.find_one() == {"_id": 1, "a": 5}


def test_what_fits_of_a_replayed_update_is_applied(target: Rows, writer: MongoRowWriter) -> None:
    target.insert_one({"_id": 1, "a": 7, "x": 2})
    table = _table(target)
    changes = [
        _made(table, RowType.UPDATE, 1, update={"updatedFields": {"x": 1}}),
        _made(table, RowType.UPDATE, 1, update={"updatedFields": {"a.b": 1, "x": 2}}),
        _made(table, RowType.UPDATE, 1, update={"updatedFields": {"a": 7}}),
    ]
    writer.write(changes, replay=True)
    assert target.find_one() == {"_id": 1, "a": 7, "x": 2}


@pytest.mark.parametrize(
    "there", [{}, {"a": 7}, {"a": None}, {"a": {}}, {"a": {"b": 7}}, {"a": [1]}, {"a": {"b": [{}]}}]
)
def test_a_replayed_update_fits_every_shape_a_later_change_may_have_left(
    target: Rows, writer: MongoRowWriter, there: dict[str, Any]
) -> None:
    target.insert_one({"_id": 1, **there})
    table = _table(target)
    changes = [
        _made(table, RowType.UPDATE, 1, update={"updatedFields": {"a.b.c": 1, "a.0": 2}}),
        _made(table, RowType.UPDATE, 1, update={"removedFields": ["a.b.c", "a.d.e"]}),
        _made(table, RowType.UPDATE, 1, update={"truncatedArrays": [{"field": "a.b", "newSize": 1}]}),
        _made(table, RowType.UPDATE, 1, update={"updatedFields": {"a.b.1.c": 1}, "removedFields": ["a.e.0.f"]}),
        _made(table, RowType.UPDATE, 1, update={"updatedFields": {"a": "settled"}}),
    ]
    assert not writer.write(changes, replay=True).rejected
    assert target.find_one() == {"_id": 1, "a": "settled"}


def test_an_insert_of_what_is_there_replaces_it_and_is_counted(target: Rows, writer: MongoRowWriter) -> None:
    target.insert_many([{"_id": key, "old": True} for key in range(0, 100, 2)])
    changes = [_made(_table(target), RowType.INSERT, key, {"new": key}) for key in range(100)]
    result = writer.write(changes, replay=False)
    assert result.tally.duplicates == 50
    assert target.count_documents({"new": {"$exists": True}, "old": {"$exists": False}}) == 100


@pytest.mark.since("5.0")  # earlier servers store no name that begins with a dollar
def test_a_replace_makes_room_where_its_id_stands_under_another_shard_key(target: Rows, writer: MongoRowWriter) -> None:
    target.insert_one({"_id": 1, "region": "old"})
    document = {"_id": 1, "region": "new", "$v": 1}
    key = bson.encode({"region": "new", "_id": 1})
    change = _made(_table(target, sharded=True), RowType.REPLACE, 1)._replace(key=key, document=bson.encode(document))
    writer.write([change], replay=True)
    assert list(target.find()) == [document]


def test_documents_of_16_mb_are_written(target: Rows, writer: MongoRowWriter) -> None:
    blob = {"blob": "x" * (16 * 1024 * 1024 - 64)}
    table = _table(target)
    changes = [_made(table, RowType.INSERT, key, blob) for key in range(4)]
    changes += [_made(table, RowType.REPLACE, key, blob) for key in (0, 9)]
    writer.write(changes, replay=False)
    assert target.count_documents({}) == 5


@pytest.mark.parametrize("zero", [False, True])
def test_documents_of_16_mb_with_a_long_id_are_written_however_they_come(
    target: Rows, writer: MongoRowWriter, zero: bool
) -> None:
    key, table = "k" * 9_000, _table(target)
    fields = {"t": Timestamp(0, 0)} if zero else {}
    blob = {**fields, "blob": b"x" * (16 * 1024 * 1024 - 10_000)}
    other = {"blob": b"y" * (16 * 1024 * 1024 - 10_000), **fields}
    for _ in range(2):
        writer.write([_made(table, RowType.INSERT, key, blob)], replay=True)
        writer.write([_made(table, RowType.REPLACE, key, other)], replay=True)
        assert target.find_one() == {"_id": key, **other}
    writer.write([_made(table, RowType.UPDATE, key, update={"updatedFields": blob})], replay=False)
    cut = {"updatedFields": {"blob": other["blob"], "a.b": 1}, "disambiguatedPaths": {"a.b": ["a.b"]}}
    writer.write([_made(table, RowType.UPDATE, key, update=cut)], replay=False)
    assert target.find_one() == {"_id": key, **other, "a.b": 1}
    writer.write([_made(table, RowType.DELETE, key)], replay=False)
    assert target.count_documents({}) == 0


@pytest.mark.since("6.0")  # earlier servers accept this document
def test_what_is_too_large_for_the_target_is_named_with_its_size(target: Rows, target_uri: str) -> None:
    """A source of 4.4 accepts an insert of this document; an oplog entry of 6.0 has no room for the `_id` beside the document."""
    letters = TableName(target.database.name, "letters")
    key, blob = "k" * 100_000, {"blob": b"x" * (16 * 1024 * 1024 - 100_100)}
    change = _made(_table(target), RowType.INSERT, key, blob)
    with Client(target_uri) as client:
        for replay in (False, True):
            with pytest.raises(RowRejected, match=r"insert of .*'_id': 'k+\.\.\. \(100\d+ bytes\).*10334") as raised:
                MongoRowWriter(client, permit=_permit).write([change], replay=replay)
            assert len(str(raised.value)) < 2_000
        options = RowWriterOptions(letters=LetterBox(collection=letters, changefeed="feed"))
        result = MongoRowWriter(client, permit=_permit, options=options).write([change], replay=True)
    assert [deviation.change.key for deviation in result.rejected] == [change.key]
    assert target.database["letters"].count_documents({}) == 1


def test_many_tables_share_commands(target_client: Client, database: str, writer: MongoRowWriter) -> None:
    changes = []
    for number in range(30):
        rows = target_client[database][f"rows{number}"]
        rows.insert_one({"_id": 1})
        table = _table(rows)
        changes += [
            _made(table, RowType.INSERT, 2, {"v": number}),
            _made(table, RowType.UPDATE, 2, update={"updatedFields": {"w": 1}}),
            _made(table, RowType.DELETE, 1),
        ]
    writer.write(changes, replay=False)
    for number in range(30):
        assert list(target_client[database][f"rows{number}"].find()) == [{"_id": 2, "v": number, "w": 1}]


def test_nothing_is_written_when_the_permit_is_over(target: Rows, target_uri: str) -> None:
    permits = iter([10.0, 0.0])
    writer = MongoRowWriter(Client(target_uri), permit=lambda: next(permits))
    with pytest.raises(FencedError):
        writer.write([_made(_table(target), RowType.INSERT, 1, {})], replay=False)
    writer.close()
    assert target.count_documents({}) == 0
