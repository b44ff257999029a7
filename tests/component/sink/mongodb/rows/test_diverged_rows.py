"""Rows that are not at the target as a change expects them: skipped when a later change explains it, else repaired or a divergence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import bson
import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.errors import Divergence, RowRejected
from changefeed.event import RowType
from devstack.mongodb.server import Client
from sink.mongodb.rows.row_writer import MongoRowWriter
from sink.row import FetchRow, RowChange, SourceRow, TargetTable
from tests.component.sink.mongodb.rows.written_rows import Rows, documents_of, keys_in, made, permit, table_of

_READ = ClusterTime(9, 1)


def _fetch_from(there: Mapping[Any, bytes]) -> FetchRow:
    return lambda change: SourceRow(there.get(bson.decode(change.key)["_id"]), _READ)


def _updates(table: TargetTable, keys: Sequence[int]) -> list[RowChange]:
    return [made(table, RowType.UPDATE, key, update={"updatedFields": {"v": 1}}) for key in keys]


@pytest.mark.parametrize("count", [20, 200], ids=["joined", "alone"])
def test_an_update_without_its_document_is_divergence(target: Rows, writer: MongoRowWriter, count: int) -> None:
    target.insert_many([{"_id": key} for key in range(count) if key != 13])
    with pytest.raises(Divergence, match="'_id': 13"):
        writer.write(_updates(table_of(target), range(count)), replay=False)


def test_a_row_of_another_spelling_of_its_key_is_repaired_as_the_source_spells_it(
    target: Rows, writer: MongoRowWriter
) -> None:
    """Under a collation, the key of a change finds the source's row that took its place under another spelling."""
    target.database.create_collection(target.name, collation={"locale": "en", "strength": 2})
    target.insert_one({"_id": "one", "v": 5})
    change = made(table_of(target), RowType.REPLACE, "one", document={"_id": "ONE", "v": 6})
    assert not writer.write([change], replay=False).tally.rejected
    assert list(target.find()) == [{"_id": "ONE", "v": 6}]


@pytest.mark.parametrize("count", [20, 200], ids=["joined", "alone"])
def test_divergence_is_repaired_from_the_source(target: Rows, count: int) -> None:
    """One document is missing at the target, one is missing at both sides, one has another shape."""
    there = {13: bson.encode({"_id": 13, "repaired": True}), 15: bson.encode({"_id": 15, "repaired": True})}
    target.insert_many([{"_id": key} for key in range(count) if key not in (13, 14, 15)])
    target.insert_one({"_id": 15, "v": 5})
    table = table_of(target)
    writer = MongoRowWriter(target.database.client, permit=permit, fetch=_fetch_from(there))
    deep = made(table, RowType.UPDATE, 15, update={"updatedFields": {"v.deep": 1}})
    changes = [deep if bson.decode(change.key)["_id"] == 15 else change for change in _updates(table, range(count))]
    result = writer.write(changes, replay=False)
    assert result.tally.repaired == 3
    assert sorted(keys_in(result)) == ["{'_id': 13}", "{'_id': 14}", "{'_id': 15}"]
    assert target.count_documents({"v": 1}) == count - 3
    assert target.count_documents({"repaired": True}) == 2
    assert target.find_one({"_id": 14}) is None


def _deletes(table: TargetTable, keys: Sequence[int]) -> list[RowChange]:
    return [made(table, RowType.DELETE, key) for key in keys]


@pytest.mark.parametrize("count", [20, 200], ids=["joined", "alone"])
def test_a_replayed_update_of_a_row_that_a_later_change_deletes_is_skipped_and_counted(
    target: Rows, writer: MongoRowWriter, count: int
) -> None:
    target.insert_many([{"_id": key} for key in range(count, 2 * count)])
    table = table_of(target)
    run = writer.begin(lambda _: False)
    result = run.prepare(_updates(table, range(2 * count)), replay=True)()
    assert result.tally.skipped == count
    run.prepare(_deletes(table, range(count)), replay=True)()
    assert not run.settle().tally.repaired
    assert target.count_documents({"v": 1}) == count


@pytest.mark.parametrize("count", [20, 200], ids=["joined", "alone"])
def test_a_replayed_update_of_a_row_that_nothing_deletes_is_divergence(
    target: Rows, writer: MongoRowWriter, count: int
) -> None:
    target.insert_many([{"_id": key} for key in range(count) if key != 13])
    with pytest.raises(Divergence, match=r"'_id': 13}.*missing"):
        writer.write(_updates(table_of(target), range(count)), replay=True)


def test_a_replayed_update_of_a_row_of_another_shape_is_divergence(target: Rows, writer: MongoRowWriter) -> None:
    """No other change of the row explains its shape."""
    target.insert_many([{"_id": 1, "a": 7}, {"_id": 2, "a": [7]}])
    table = table_of(target)
    changes = [
        made(table, RowType.UPDATE, 1, update={"updatedFields": {"a.b": 1, "x": 1}}),
        made(table, RowType.UPDATE, 2, update={"truncatedArrays": [{"field": "a", "newSize": 1}]}),
        made(table, RowType.UPDATE, 1, update={"updatedFields": {"x": 2}}),
    ]
    with pytest.raises(Divergence, match="'_id': 1}") as raised:
        writer.write(changes, replay=True)
    assert "'_id': 2}" not in str(raised.value)
    assert target.find_one({"_id": 1}) == {"_id": 1, "a": 7, "x": 2}


def test_what_may_be_explained_behind_the_run_is_unsettled(target: Rows, writer: MongoRowWriter) -> None:
    table = table_of(target)
    result = writer.begin(lambda _: True).prepare(_updates(table, [1]), replay=True)()
    assert result.tally.skipped == 1
    run = writer.begin(lambda _: True)
    run.prepare(_updates(table, [1]), replay=True)()
    assert run.settle().unsettled == {table.id}


@pytest.mark.parametrize("repairs", [True, False])
def test_a_row_that_is_as_at_the_source_by_now_is_no_divergence(target: Rows, repairs: bool) -> None:
    """One row was repaired by hand; the source has deleted the other since."""
    mended = {"_id": 2, "a": 8}
    target.insert_one(mended)
    there = {2: bson.encode(mended)}
    writer = MongoRowWriter(
        target.database.client,
        permit=permit,
        fetch=_fetch_from(there),
        repairs=repairs,
    )
    table = table_of(target)
    changes = [*_updates(table, [1]), made(table, RowType.UPDATE, 2, update={"updatedFields": {"a.b": 1}})]
    result = writer.write(changes, replay=True)
    assert (result.tally.skipped, result.tally.repaired) == (2, 0)
    assert list(target.find()) == [mended]


def test_a_row_that_a_node_which_has_left_read_at_the_source_is_no_divergence(target: Rows) -> None:
    """Nothing says that it is newer, so this is no replay. From then on the table is one."""
    read = {"_id": 2, "a": 8}
    target.insert_many([read, {"_id": 3, "a": 8}])
    there = {2: bson.encode(read), 3: bson.encode({"_id": 3, "a": {"b": 1}})}
    writer = MongoRowWriter(target.database.client, permit=permit, fetch=_fetch_from(there), repairs=False)
    table = table_of(target)
    result = writer.write(
        [*_updates(table, [1]), made(table, RowType.UPDATE, 2, update={"updatedFields": {"a.b": 1}})], replay=False
    )
    assert (result.tally.skipped, result.tally.repaired, list(result.ahead)) == (2, 0, [table.id])
    with pytest.raises(Divergence, match="'_id': 3}") as raised:
        writer.write([made(table, RowType.UPDATE, 3, update={"updatedFields": {"a.b": 1}})], replay=False)
    assert "'_id': 2}" not in str(raised.value)
    assert target.find_one({"_id": 2}) == read


def test_a_replayed_row_that_nothing_explains_is_repaired(target: Rows) -> None:
    there = {key: bson.encode({"_id": key, "v": {"deep": 1}}) for key in (1, 2)}
    target.insert_one({"_id": 2, "v": 5})
    table = table_of(target)
    writer = MongoRowWriter(target.database.client, permit=permit, fetch=_fetch_from(there))
    changes = [made(table, RowType.UPDATE, key, update={"updatedFields": {"v.deep": 1}}) for key in (1, 2)]
    result = writer.write(changes, replay=True)
    assert result.tally.repaired == 2
    assert sorted(keys_in(result)) == ["{'_id': 1}", "{'_id': 2}"]
    assert documents_of(target) == [there[1], there[2]]


def test_a_repaired_row_waits_for_the_value_that_another_gives_up_later(target: Rows, target_uri: str) -> None:
    """When 1 was read at the source, 2 had given up `u` and 1 had taken it. The window that repairs 1 ends before these changes."""
    target.create_index("u", unique=True)
    target.insert_one({"_id": 2, "u": "wanted"})
    table = table_of(target, ordered=True)
    fetch = _fetch_from({1: bson.encode({"_id": 1, "u": "wanted", "n": 1})})
    lost = made(table, RowType.UPDATE, 1, update={"updatedFields": {"n": 1}})
    later = [
        made(table, RowType.UPDATE, 2, update={"updatedFields": {"u": "other"}}),
        made(table, RowType.UPDATE, 1, update={"updatedFields": {"u": "wanted"}}),
    ]
    with Client(target_uri) as client:
        writer = MongoRowWriter(client, permit=permit, fetch=fetch)
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
    lost = made(table_of(target, ordered=True), RowType.UPDATE, 1, update={"updatedFields": {"n": 1}})
    with Client(target_uri) as client, pytest.raises(RowRejected, match="wanted"):
        MongoRowWriter(client, permit=permit, fetch=fetch).write([lost], replay=True)


def test_a_row_whose_table_is_gone_from_the_source_is_left_as_it_is(target: Rows, target_uri: str) -> None:
    target.insert_one({"_id": 1, "a": 5})
    misfit = made(table_of(target), RowType.UPDATE, 1, update={"updatedFields": {"a.b": 1}})
    with Client(target_uri) as client:
        writer = MongoRowWriter(client, permit=permit, fetch=lambda _: None)
        [sample] = writer.write([misfit], replay=False).samples
        assert "the source has dropped its table" in sample
        assert not writer.write([misfit], replay=True).samples
    assert target.find_one() == {"_id": 1, "a": 5}


def test_what_fits_of_a_replayed_update_is_applied(target: Rows, writer: MongoRowWriter) -> None:
    target.insert_one({"_id": 1, "a": 7, "x": 2})
    table = table_of(target)
    changes = [
        made(table, RowType.UPDATE, 1, update={"updatedFields": {"x": 1}}),
        made(table, RowType.UPDATE, 1, update={"updatedFields": {"a.b": 1, "x": 2}}),
        made(table, RowType.UPDATE, 1, update={"updatedFields": {"a": 7}}),
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
    table = table_of(target)
    changes = [
        made(table, RowType.UPDATE, 1, update={"updatedFields": {"a.b.c": 1, "a.0": 2}}),
        made(table, RowType.UPDATE, 1, update={"removedFields": ["a.b.c", "a.d.e"]}),
        made(table, RowType.UPDATE, 1, update={"truncatedArrays": [{"field": "a.b", "newSize": 1}]}),
        made(table, RowType.UPDATE, 1, update={"updatedFields": {"a.b.1.c": 1}, "removedFields": ["a.e.0.f"]}),
        made(table, RowType.UPDATE, 1, update={"updatedFields": {"a": "settled"}}),
    ]
    assert not writer.write(changes, replay=True).tally.rejected
    assert target.find_one() == {"_id": 1, "a": "settled"}


def test_an_insert_of_what_is_there_replaces_it_and_is_counted(target: Rows, writer: MongoRowWriter) -> None:
    target.insert_many([{"_id": key, "old": True} for key in range(0, 100, 2)])
    changes = [made(table_of(target), RowType.INSERT, key, {"new": key}) for key in range(100)]
    result = writer.write(changes, replay=False)
    assert result.tally.duplicates == 50
    assert target.count_documents({"new": {"$exists": True}, "old": {"$exists": False}}) == 100


def test_what_is_applied_late_does_not_undo_a_later_change_of_its_row(target: Rows, writer: MongoRowWriter) -> None:
    """In a replay the first update does not fit, which its command's answer tells after the second was applied. The third explains it."""
    target.insert_one({"_id": 1, "a": 5, "x": 2})
    cut = {"truncatedArrays": [{"field": "a.l", "newSize": 1}]}
    updates: list[dict[str, Any]] = [
        {"updatedFields": {"x": 1}, **cut},
        {"updatedFields": {"x": 2}},
        {"updatedFields": {"a": 5}},
    ]
    table = table_of(target)
    writer.write([made(table, RowType.UPDATE, 1, update=update) for update in updates], replay=True)
    assert target.find_one({}) == {"_id": 1, "a": 5, "x": 2}


_POINT = {"type": "Point", "coordinates": [1, 1]}
_LINE = {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}
_NEVER_AT_THE_SOURCE = [
    pytest.param({"a": 1, "b": 1}, [("a", 1), ("b", 1)], [{"a": [1]}, {"a": 1}, {"b": [1]}], id="two arrays"),
    pytest.param({"g": _POINT}, [("g", "2dsphere")], [{"g.coordinates": [2, 2], "v": 2}, {"g": _LINE}], id="no place"),
]


def _history(target: Rows, first: dict[str, Any], updates: list[dict[str, Any]]) -> list[RowChange]:
    table = table_of(target)
    changed = [made(table, RowType.UPDATE, 1, update={"updatedFields": fields}) for fields in updates]
    return [made(table, RowType.INSERT, 1, {"_id": 1, **first}), *changed]


@pytest.mark.parametrize(("first", "index", "updates"), _NEVER_AT_THE_SOURCE)
def test_a_replayed_update_is_not_rejected_for_a_state_that_never_was_at_the_source(
    target: Rows, target_uri: str, first: dict[str, Any], index: list[Any], updates: list[dict[str, Any]]
) -> None:
    target.create_index(index)
    there: dict[Any, bytes] = {}
    writer = MongoRowWriter(Client(target_uri), permit=permit, fetch=_fetch_from(there))
    changes = _history(target, first, updates)
    for change in changes:
        writer.write([change], replay=False)
    [there[1]] = documents_of(target)
    for begin in range(1, len(changes)):
        result = writer.write(changes[begin:], replay=True)
        assert result.tally.rejected == 0
        assert documents_of(target) == [there[1]]
    run = writer.begin(lambda _: True)
    run.prepare(changes[1:2], replay=True)()
    assert run.settle().unsettled
    writer.close()


def test_a_replayed_update_is_rejected_if_the_target_refuses_the_row_of_now(target: Rows, target_uri: str) -> None:
    target.create_index([("a", 1), ("b", 1)])
    target.insert_one({"_id": 1, "a": 1, "b": [1]})
    there = {1: bson.encode({"_id": 1, "a": [1], "b": [1]})}
    writer = MongoRowWriter(Client(target_uri), permit=permit, fetch=_fetch_from(there))
    with pytest.raises(RowRejected, match="parallel arrays"):
        writer.write([made(table_of(target), RowType.UPDATE, 1, update={"updatedFields": {"a": [1]}})], replay=True)
    writer.close()
