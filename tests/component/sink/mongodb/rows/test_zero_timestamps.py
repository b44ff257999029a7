"""A top-level `Timestamp(0, 0)` arrives unchanged on every member and version. Servers replace it by their time in inserts and replacements."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import bson
import pytest
from bson.timestamp import Timestamp
from pymongo import ReadPreference, WriteConcern
from pymongo.collection import Collection

from changefeed.cluster_time import ClusterTime
from changefeed.event import RowType
from changefeed.table import TableId, TableName
from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.server import Client
from sink.mongodb.rows.document_loader import MongoDocumentLoader
from sink.mongodb.rows.row_writer import MongoRowWriter
from sink.row import RowChange, SourceRow, TargetTable

ZERO = Timestamp(0, 0)
_times = count(1)


def _permit() -> float:
    return 30.0


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    directory = tmp_path_factory.mktemp("zero")
    with ReplicaSet("zero", directory / "data", directory, size=2) as members:
        yield members


class Target:
    def __init__(self, members: ReplicaSet) -> None:
        self._members = members
        self.client = Client(members.uri)
        self.writer = MongoRowWriter(self.client, permit=_permit)

    def table(self, coll: str, **options: Any) -> TargetTable:
        name = TableName("zero", coll)
        return TargetTable(id=TableId("ab" * 16), source=name, name=name, **options)

    def rows(self, coll: str) -> Collection[dict[str, Any]]:
        return self.client["zero"][coll]

    def load(self, documents: list[dict[str, Any]], table: TargetTable, *, once: bool = False) -> None:
        loader = MongoDocumentLoader(self.client, table=table, once=once, permit=_permit)
        loader.load([bson.encode(document) for document in documents], ClusterTime(1, 1))

    def write(self, changes: list[RowChange], *, replay: bool = False) -> None:
        result = self.writer.write(changes, replay=replay)
        assert not result.samples

    def everywhere(self, coll: str, *, natural: bool = False) -> list[dict[str, Any]]:
        """The documents of every member."""
        self.rows("end").with_options(write_concern=WriteConcern(w=2)).insert_one({})
        found = []
        for member in self._members.members:
            with member.client() as client:
                database = client.get_database("zero", read_preference=ReadPreference.SECONDARY_PREFERRED)
                rows = list(database[coll].find())
            found.append(rows if natural else sorted(rows, key=lambda row: str(row["_id"])))
        assert found[0] == found[1]
        return found[0]


@pytest.fixture(scope="module")
def target(members: ReplicaSet) -> Iterator[Target]:
    target = Target(members)
    yield target
    target.client.close()


def whole(table: TargetTable, kind: RowType, document: dict[str, Any]) -> RowChange:
    key = bson.encode({"_id": document["_id"]})
    return RowChange(table, kind, key, bson.encode(document), None, next(_times), b"")


def update(table: TargetTable, id: Any, fields: dict[str, Any]) -> RowChange:
    description = {"updatedFields": fields, "removedFields": [], "truncatedArrays": []}
    return RowChange(table, RowType.UPDATE, bson.encode({"_id": id}), None, bson.encode(description), next(_times), b"")


def described(table: TargetTable, id: Any, **description: Any) -> RowChange:
    event = bson.encode({"updatedFields": {}, "removedFields": [], "truncatedArrays": [], **description})
    return RowChange(table, RowType.UPDATE, bson.encode({"_id": id}), None, event, next(_times), b"")


def delete(table: TargetTable, id: Any) -> RowChange:
    return RowChange(table, RowType.DELETE, bson.encode({"_id": id}), None, None, next(_times), b"")


DOCUMENTS: list[dict[str, Any]] = [
    {"_id": 1, "t": ZERO, "n": {"t": ZERO}, "l": [ZERO], "u": ZERO},
    {"_id": ZERO, "t": 1},
    {"_id": 2, "n": {"t": ZERO}},
    {"_id": {"t": ZERO}, "t": ZERO, "k": 0.0},
    {"_id": "x", "t": Timestamp(1, 0), "z": Timestamp(0, 1)},
    {"_id": 3, "a": "\x11", "b": 0},
]


@pytest.mark.parametrize("ordered", [False, True])
def test_copied_documents_keep_their_zero_timestamps(target: Target, ordered: bool) -> None:
    table = target.table(f"copied_{ordered}", ordered=ordered)
    target.load(DOCUMENTS, table)
    target.load(DOCUMENTS, table)
    assert target.everywhere(table.name.coll) == sorted(DOCUMENTS, key=lambda row: str(row["_id"]))


def test_a_capped_table_keeps_its_order(target: Target) -> None:
    target.client["zero"].create_collection("capped", capped=True, size=1 << 20)
    documents = [{"_id": number * 7 % 10, **({"t": ZERO} if number % 3 else {})} for number in range(10)]
    table = target.table("capped", ordered=True)
    target.load(documents, table, once=True)
    target.write([whole(table, RowType.INSERT, document) for document in documents], replay=True)
    assert target.everywhere("capped", natural=True) == documents


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("there", [False, True])
def test_rows_keep_their_zero_timestamps_however_they_come(target: Target, ordered: bool, there: bool) -> None:
    table = target.table(f"rows_{ordered}_{there}", ordered=ordered)
    if there:
        target.rows(table.name.coll).insert_many([{"_id": number, "old": number} for number in (5.0, 6, 8)])
    changes = [
        whole(table, RowType.INSERT, {"_id": 4, "t": 1}),
        whole(table, RowType.INSERT, {"_id": 5, "t": ZERO, "n": {"t": ZERO}}),
        whole(table, RowType.REPLACE, {"_id": 6, "a": 1, "t": ZERO, "z": 2}),
        whole(table, RowType.INSERT, {"_id": 7, "a": 1}),
        update(table, 7, {"t": ZERO, "z": 3}),
        update(table, 5, {"x": ZERO}),
        whole(table, RowType.REPLACE, {"_id": 4, "t": ZERO}),
        whole(table, RowType.INSERT, {"_id": 8, "t": ZERO}),
        delete(table, 8),
        whole(table, RowType.INSERT, {"_id": 8, "t": ZERO, "again": True}),
    ]
    for _ in range(3):
        target.write(changes, replay=there)
        there = True
        assert target.everywhere(table.name.coll) == [
            {"_id": 4, "t": ZERO},
            {"_id": 5, "t": ZERO, "n": {"t": ZERO}, "x": ZERO},
            {"_id": 6, "a": 1, "t": ZERO, "z": 2},
            {"_id": 7, "a": 1, "t": ZERO, "z": 3},
            {"_id": 8, "t": ZERO, "again": True},
        ]


@pytest.mark.parametrize("ordered", [False, True])
def test_updates_that_need_a_pipeline_leave_and_set_zero_timestamps(target: Target, ordered: bool) -> None:
    """Old servers log a pipeline's update of such a row, above all of a small one, as a replacement."""
    table = target.table(f"pipelines_{ordered}", ordered=ordered)
    cut = {"truncatedArrays": [{"field": "l", "newSize": 1}]}
    changes = [
        *(whole(table, RowType.INSERT, {"_id": number, "t": ZERO, "l": [1, 2]}) for number in (1, 2, 3, 4)),
        whole(table, RowType.INSERT, {"_id": ZERO, "l": [1, 2]}),
        whole(table, RowType.INSERT, {"_id": 5, "t": ZERO, "l": [1, 2], "large": "x" * 2000}),
        whole(table, RowType.INSERT, {"_id": 6, "t": 1}),
        whole(table, RowType.INSERT, {"_id": 7, "n": {"t": ZERO}, "l": [1, 2]}),
        described(table, 1, updatedFields={"z": 1, "a": 2}),
        described(table, 2, **cut),
        described(table, 3),
        described(table, 4, updatedFields={"z": 1, "t": 5, "a": ZERO}),
        *(described(table, key, **cut) for key in (ZERO, 5, 7)),
        described(table, 6, updatedFields={"z": 1, "t": ZERO, "a": 2}),
    ]
    for replay in (False, True):
        target.write(changes, replay=replay)
        assert target.everywhere(table.name.coll) == [
            {"_id": 1, "t": ZERO, "l": [1, 2], "z": 1, "a": 2},
            {"_id": 2, "t": ZERO, "l": [1]},
            {"_id": 3, "t": ZERO, "l": [1, 2]},
            {"_id": 4, "t": 5, "l": [1, 2], "z": 1, "a": ZERO},
            {"_id": 5, "t": ZERO, "l": [1], "large": "x" * 2000},
            {"_id": 6, "t": ZERO, "z": 1, "a": 2},
            {"_id": 7, "n": {"t": ZERO}, "l": [1]},
            {"_id": ZERO, "l": [1]},
        ]


def test_an_edited_row_of_a_capped_table_keeps_its_zero_timestamp_at_the_primary(target: Target) -> None:
    rows = target.client["zero"].create_collection("capped_edit", capped=True, size=1 << 20)
    table = target.table("capped_edit", ordered=True)
    target.write([whole(table, RowType.INSERT, {"_id": 1, "t": ZERO, "a": 1, "b": 2})])
    target.write([described(table, 1, updatedFields={"a": 3}, removedFields=["a"])])
    found = rows.find_one()
    assert found is not None
    assert list(found.items()) == [("_id", 1), ("t", ZERO), ("b", 2), ("a", 3)]


def test_a_unique_index_and_a_validator_meet_the_zero_and_no_other_time(target: Target) -> None:
    rows = target.client["zero"].create_collection("strict", validator={"t": Timestamp(5, 5)})
    rows.create_index("t", unique=True)
    table = target.table("strict", ordered=True)
    target.write([whole(table, RowType.INSERT, {"_id": 1, "t": ZERO}), whole(table, RowType.INSERT, {"_id": 2})])
    assert target.everywhere("strict") == [{"_id": 1, "t": ZERO}, {"_id": 2}]
    # the zero moves from row 1 to row 2; in the replay the target already has the later state
    changes = [
        whole(table, RowType.REPLACE, {"_id": 1, "t": Timestamp(1, 1)}),
        whole(table, RowType.REPLACE, {"_id": 2, "t": ZERO}),
    ]
    target.write(changes)
    target.write([whole(table, RowType.INSERT, {"_id": 1, "t": ZERO}), *changes], replay=True)
    assert target.everywhere("strict") == [{"_id": 1, "t": Timestamp(1, 1)}, {"_id": 2, "t": ZERO}]


def test_rows_exchange_a_zero_timestamp(target: Target) -> None:
    rows = target.rows("exchanged")
    rows.create_index("t", unique=True)
    rows.insert_many([{"_id": 1, "t": Timestamp(1, 1)}, {"_id": 2, "t": Timestamp(2, 2)}])
    rows.update_one({"_id": 1}, {"$set": {"t": ZERO}})
    table = target.table("exchanged", ordered=True)
    target.write(
        [
            whole(table, RowType.REPLACE, {"_id": 1, "t": Timestamp(2, 2)}),
            whole(table, RowType.REPLACE, {"_id": 2, "t": ZERO}),
        ],
        replay=True,
    )
    assert target.everywhere("exchanged") == [{"_id": 1, "t": Timestamp(2, 2)}, {"_id": 2, "t": ZERO}]


def test_a_repaired_row_has_the_sources_zero_timestamp(target: Target, members: ReplicaSet) -> None:
    table = target.table("repaired")
    document = {"_id": 1, "t": ZERO, "n": 1}
    with Client(members.uri) as client:
        writer = MongoRowWriter(
            client, permit=_permit, fetch=lambda _: SourceRow(bson.encode(document), ClusterTime(9, 1))
        )
        result = writer.write([update(table, 1, {"n": 1})], replay=False)
    assert result.tally.repaired == 1
    assert target.everywhere("repaired") == [document]


def test_a_replayed_insert_of_a_dollar_name_is_inserted_again(target: Target) -> None:
    """Servers before 5.0 accept such a name inside a document only in an insert."""
    table = target.table("dollar")
    for value in (1, 2):
        change = whole(table, RowType.INSERT, {"_id": 1, "n": {"$e": value, "c.d": 1}})
        target.write([change], replay=value > 1)
    assert target.everywhere(table.name.coll) == [{"_id": 1, "n": {"$e": 2, "c.d": 1}}]
