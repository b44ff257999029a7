"""A chunk is read at one time, or the reader reports that it was not: a server answers a find under a name that is gone with no documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import bson
import pytest
from bson.max_key import MaxKey
from bson.raw_bson import RawBSONDocument
from pymongo.errors import AutoReconnect

from changefeed.position import Position
from changefeed.table import TableId, TableName
from devstack.mongodb.server import Client
from source.connection import connect
from source.oplog.window import majority_time
from source.tables import chunk_reader
from source.tables.chunk_reader import Chunk, ChunkReader, ReadWay, SnapshotLost

_DOCUMENTS = 12_000
"""More than fit into two replies."""


@pytest.fixture
def reader(source_uri: str, source_client: Client, database: str) -> Iterator[ChunkReader]:
    with connect(source_uri) as client:
        source_client[database]["t"].insert_many([{"_id": key} for key in range(_DOCUMENTS)])
        chunk = Chunk(table=TableName(database, "t"), not_before=Position(majority_time(client)))
        yield ChunkReader(client, chunk, ReadWay.SNAPSHOT)


@pytest.mark.since("5.0")
def test_a_snapshot_holds_what_was_there_at_its_time(reader: ChunkReader, source_client: Client, database: str) -> None:
    batches = reader.batches()
    documents = next(batches)
    source_client[database]["t"].delete_many({})
    source_client[database]["t"].create_index("x")
    documents += [document for batch in batches for document in batch]
    assert [RawBSONDocument(document)["_id"] for document in documents] == list(range(_DOCUMENTS))
    assert reader.after == reader.until


@pytest.mark.since("5.0")
@pytest.mark.parametrize(
    "ddl",
    [
        lambda database: database["t"].rename("u"),
        lambda database: database["t"].drop(),
        lambda database: (database["t"].drop(), database.create_collection("t")),
        lambda database: (database.create_collection("o"), database["o"].rename("t", dropTarget=True)),
    ],
    ids=["rename", "drop", "drop and create", "replaced"],
)
def test_a_snapshot_whose_name_went_away_is_lost_and_not_taken_for_complete(
    reader: ChunkReader, source_client: Client, database: str, ddl: Callable[[object], object]
) -> None:
    batches = reader.batches()
    assert next(batches)
    ddl(source_client[database])
    with pytest.raises(SnapshotLost):
        list(batches)


@pytest.mark.since("5.0")
@pytest.mark.parametrize("way", ReadWay)
def test_a_table_that_has_got_the_name_meanwhile_is_not_read_for_the_one_that_had_it(
    way: ReadWay, source_uri: str, source_client: Client, database: str
) -> None:
    with connect(source_uri) as client:
        source_client[database].create_collection("t")
        [listed] = source_client[database].list_collections(filter={"name": "t"})
        id_ = TableId(listed["info"]["uuid"].hex())
        source_client[database]["t"].insert_one({"_id": 1})
        chunk = Chunk(table=TableName(database, "t"), not_before=Position(majority_time(client)), only=id_)
        assert [len(batch) for batch in ChunkReader(client, chunk, way).batches()] == [1]
        source_client[database]["t"].drop()
        source_client[database]["t"].insert_one({"_id": 2})
        reader = ChunkReader(client, chunk, way)
        assert list(reader.batches()) == []
        assert reader.until >= reader.after


@pytest.mark.since("5.0")
@pytest.mark.parametrize("replies", [1, 2, 3])
def test_a_document_with_the_last_key_of_all_is_read_after_a_broken_connection(
    replies: int, source_uri: str, source_client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_reader, "_MOST_DOCUMENTS", 2)
    keys = [1, 2, 3, 4, 5, MaxKey()]
    source_client[database]["t"].insert_many({"_id": key} for key in keys)
    with connect(source_uri) as client:
        chunk = Chunk(table=TableName(database, "t"), not_before=Position(majority_time(client)))
        shown: Any = ChunkReader(client, chunk, ReadWay.SNAPSHOT).batches()
        batches = [next(shown) for _ in range(replies)]
        with suppress(StopIteration):
            batches += [shown.throw(AutoReconnect("the connection broke")), *shown]
    assert [bson.decode(document)["_id"] for batch in batches for document in batch] == keys
