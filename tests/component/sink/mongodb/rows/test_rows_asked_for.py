"""Rows that a verification found different, written at the end of a run into a real server."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from pymongo.collection import Collection

from changefeed.cluster_time import ClusterTime
from changefeed.event import RowType
from changefeed.position import Position
from changefeed.table import TableId, TableName
from devstack.mongodb.server import Client
from sink.mongodb.letters.open_letters import LetterBox
from sink.mongodb.rows.row_writer import MongoRowWriter, RowWriterOptions
from sink.row import AskedRows, RowChange, SoleTable, SourceRow, TargetTable, WriteResult

_READ = ClusterTime(9, 1)


class Side:
    """A target with a unique index, and a source that is a dictionary."""

    def __init__(self, client: Client, database: str) -> None:
        self.rows: Collection[dict[str, Any]] = client[database]["rows"]
        self.rows.create_index("u", unique=True)
        self.letters = client[database]["letters"]
        self.source: dict[Any, Any] = {}
        self.table = TargetTable(
            id=TableId("ab" * 16), source=TableName("s", "a"), name=TableName(database, "rows"), ordered=True
        )

    def repair(self, *ids: object, changes: tuple[RowChange, ...] = (), letters: bool = False) -> WriteResult:
        box = LetterBox(collection=TableName(self.rows.database.name, "letters"), changefeed="f") if letters else None
        writer = MongoRowWriter(
            self.rows.database.client,
            permit=lambda: 30.0,
            options=RowWriterOptions(letters=box),
            fetch=self._fetch,
            repairs=False,
        )
        place = SoleTable(self.table, Position(ClusterTime(5, 0)))
        keys = [bson.encode({"_id": id}) for id in ids]
        asked = AskedRows(place=place, keys=keys, removes=True)
        run = writer.begin(lambda _: False, None, [asked])
        result = run.prepare(changes, replay=False)() if changes else WriteResult()
        result.add(run.settle())
        return result

    def _fetch(self, change: RowChange) -> SourceRow:
        id = bson.decode(change.key)["_id"]
        row = self.source.get(id)
        return SourceRow(None if row is None else bson.encode({"_id": id, **row}), _READ)

    @property
    def there(self) -> dict[Any, Any]:
        return {row.pop("_id"): row for row in self.rows.find()}


@pytest.fixture
def side(target_client: Client, database: str) -> Side:
    return Side(target_client, database)


def test_values_that_rows_took_from_each_other_go_back(side: Side) -> None:
    side.source = {1: {"u": 1}, 2: {"u": 2}, 3: {"u": 3}, 4: {"u": 4}}
    side.rows.insert_many([{"_id": 1, "u": 2}, {"_id": 2, "u": 1}, {"_id": 3, "u": 3}, {"_id": 9, "u": 4}])
    result = side.repair(1, 2, 3, 4, 9)
    assert side.there == side.source
    assert result.tally.repaired == 5
    assert (result.ahead, result.unsettled) == ({side.table.id: _READ}, set())


def test_a_row_whose_value_another_row_has_is_left_and_its_table_goes_on(side: Side) -> None:
    side.source = {1: {"u": 1}, 2: {"u": 2}}
    side.rows.insert_one({"_id": "somebody's", "u": 1})
    result = side.repair(1, 2)
    assert side.there == {"somebody's": {"u": 1}, 2: {"u": 2}}
    assert (result.unsettled, result.tally.rejected) == (set(), 0)


def test_a_row_with_a_dead_letter_is_tried_again(side: Side) -> None:
    side.source = {1: {"u": 1}}
    side.rows.insert_one({"_id": "somebody's", "u": 1})
    document = bson.encode({"_id": 1, "u": 1})
    insert = RowChange(side.table, RowType.INSERT, bson.encode({"_id": 1}), document, None, 6 << 32, b"82")
    side.repair(changes=(insert,), letters=True)
    side.repair(1, letters=True)
    assert [letter["tries"] for letter in side.letters.find()] == [2]
    side.rows.delete_one({"_id": "somebody's"})
    side.repair(1, letters=True)
    assert (side.there, side.letters.count_documents({"event": {"$exists": True}})) == ({1: {"u": 1}}, 0)


def test_a_row_that_the_run_changes_too_keeps_that_change(side: Side) -> None:
    """The row is read after the change, so it contains the change."""
    side.source = {1: {"u": 1, "n": 2}}
    side.rows.insert_one({"_id": 1, "u": 1, "bad": 1})
    described = {"updatedFields": {"n": 1}, "removedFields": [], "truncatedArrays": []}
    update = RowChange(
        side.table, RowType.UPDATE, bson.encode({"_id": 1}), None, bson.encode(described), 6 << 32, b"82"
    )
    side.repair(1, changes=(update,))
    assert side.there == side.source
