"""A target that cannot finish large commands within the time limit for writes gets smaller ones."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import bson
import pytest
from pymongo.errors import NetworkTimeout

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SinkUnavailable
from changefeed.event import RowType
from changefeed.table import TableId, TableName
from devstack.mongodb.server import Client
from sink.mongodb.rows.document_loader import MongoDocumentLoader
from sink.mongodb.rows.row_writer import MongoRowWriter, RowWriterOptions
from sink.row import RowChange, TargetTable

_PARTS = ("documents", "updates", "deletes", "ops")


class SlowClient:
    """Times out on commands of more than `most` statements. With `done` the server has executed them, otherwise nothing of them."""

    def __init__(self, client: Client, most: int, *, done: bool) -> None:
        self.sizes: list[int] = []
        self._client = client
        self._most = most
        self._done = done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def __getitem__(self, name: str) -> Any:
        return SlowDatabase(self, self._client[name])

    def answer(self, database: Any, body: dict[str, Any], options: dict[str, Any]) -> Any:
        size = max((len(body[part]) for part in _PARTS if part in body), default=0)
        self.sizes.append(size)
        late = size > self._most
        reply = database.command(body, **options) if self._done or not late else None
        if late:
            raise NetworkTimeout("timed out")
        return reply


class SlowDatabase:
    def __init__(self, client: SlowClient, database: Any) -> None:
        self._client = client
        self._database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def command(self, body: dict[str, Any], **options: Any) -> Any:
        return self._client.answer(self._database, body, options)


def _changes(table: TargetTable) -> list[RowChange]:
    """Changes of forty documents: each is inserted and updated, every third is deleted."""

    def change(kind: RowType, number: int, order: int) -> RowChange:
        key = bson.encode({"_id": number})
        document = bson.encode({"_id": number, "n": 0}) if kind is RowType.INSERT else None
        description = {"updatedFields": {"n": number}, "removedFields": [], "truncatedArrays": []}
        update = bson.encode(description) if kind is RowType.UPDATE else None
        return RowChange(table, kind, key, document, update, order, b"82")

    inserts = [change(RowType.INSERT, number, number) for number in range(40)]
    updates = [change(RowType.UPDATE, number, 100 + number) for number in range(40)]
    deletes = [change(RowType.DELETE, number, 200 + number) for number in range(0, 40, 3)]
    return [*inserts, *updates, *deletes]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("done", [False, True])
def test_batches_become_as_small_as_the_target_can_take(
    target_client: Client, database: str, *, done: bool, ordered: bool
) -> None:
    client = SlowClient(target_client, 6, done=done)
    writer = MongoRowWriter(cast("Client", client), permit=lambda: 30.0)
    name = TableName(database, "rows")
    changes = _changes(TargetTable(id=TableId("ab" * 16), source=name, name=name, ordered=ordered))
    written = writer.write(changes, replay=False)
    assert not written.samples
    expected = [{"_id": number, "n": number} for number in range(40) if number % 3]
    assert list(target_client[database]["rows"].find(sort=[("_id", 1)])) == expected
    late = [size for size in client.sizes if size > 6]
    assert len(late) < 6, f"it learns: {client.sizes}"


def _loader(client: SlowClient, database: str, *, once: bool = False, ordered: bool = False) -> MongoDocumentLoader:
    name = TableName(database, "rows")
    table = TargetTable(id=TableId("ab" * 16), source=name, name=name, ordered=ordered)
    options = RowWriterOptions(retry_for=timedelta(seconds=1))
    return MongoDocumentLoader(cast("Client", client), table=table, once=once, permit=lambda: 30.0, options=options)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("done", [False, True])
def test_loads_become_as_small_as_the_target_can_take(
    target_client: Client, database: str, *, done: bool, ordered: bool
) -> None:
    """A reply of the source has 16 MB, which a slow link does not carry within a permit, however often they are sent."""
    client = SlowClient(target_client, 6, done=done)
    loader = _loader(client, database, ordered=ordered)
    for first in (0, 40):
        loader.load([bson.encode({"_id": first + number}) for number in range(40)], ClusterTime(1, 1))
    assert list(target_client[database]["rows"].find(sort=[("_id", 1)])) == [{"_id": number} for number in range(80)]
    assert [size for size in client.sizes if size > 6] == [40, 20, 10], "it learns"


def test_a_table_that_may_get_no_document_twice_is_not_loaded_in_smaller_parts(
    target_client: Client, database: str
) -> None:
    client = SlowClient(target_client, 6, done=True)
    with pytest.raises(SinkUnavailable, match="timed out"):
        _loader(client, database, once=True).load([bson.encode({"n": n}) for n in range(40)], ClusterTime(1, 1))


def test_a_single_change_that_takes_too_long_is_tried_again_and_then_told(target_client: Client, database: str) -> None:
    options = RowWriterOptions(retry_for=timedelta(seconds=1))
    client = cast("Client", SlowClient(target_client, 0, done=False))
    writer = MongoRowWriter(client, permit=lambda: 30.0, options=options)
    name = TableName(database, "rows")
    changes = _changes(TargetTable(id=TableId("ab" * 16), source=name, name=name))[:2]
    with pytest.raises(SinkUnavailable, match="timed out"):
        writer.write(changes, replay=False)
