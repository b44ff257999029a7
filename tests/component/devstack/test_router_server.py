"""A driver meets the stand-in for a `mongos` as it would meet one."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure, WriteError

from devstack.mongodb.server import Client
from devstack.process import wait_until
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.served.router_server import RouterServer

pytestmark = pytest.mark.since("6.0")
NS = "shop.items"
_SHARD_KEY_NOT_FOUND = 61


@pytest.fixture
def client(cluster: ShardedCluster) -> Iterator[Client]:
    """With `items` on both shards, divided at 100."""
    with RouterServer(cluster) as server, Client(server.uri) as client:
        client.admin.command("enableSharding", "shop")
        client.admin.command("shardCollection", NS, key={"k": 1})
        client.admin.command("split", NS, middle={"k": 100})
        other = ({"sa", "sb"} - {primary_of(client)}).pop()
        upper = client.config.chunks.find_one({"min.k": 100})
        assert upper is not None
        client.admin.command("moveChunk", NS, bounds=[upper["min"], upper["max"]], to=other)
        yield client
        client.drop_database("shop")


def primary_of(client: Client) -> str:
    found = client.config.databases.find_one({"_id": "shop"})
    assert found is not None
    return str(found["primary"])


def test_a_driver_takes_it_for_a_router(client: Client) -> None:
    client.admin.command("ping")
    assert client.topology_description.topology_type_name == "Sharded" or client.is_mongos
    assert client.server_info()["version"].startswith("6.")


def test_rows_go_to_their_owners_and_come_back_in_order(client: Client, cluster: ShardedCluster) -> None:
    items = client.shop.items
    items.insert_many([{"_id": number, "k": number} for number in range(0, 200, 10)], ordered=False)
    with cluster.shards["sa"].client() as sa, cluster.shards["sb"].client() as sb:
        assert [len(list(shard.shop.items.find())) for shard in (sa, sb)] == [10, 10]
    assert [row["_id"] for row in items.find(sort=[("_id", -1)], batch_size=3)] == list(range(190, -1, -10))
    done = items.bulk_write(
        [
            UpdateOne({"k": 0, "_id": 0}, {"$set": {"n": 1}}),
            ReplaceOne({"k": 110, "_id": 110}, {"_id": 110, "k": 110, "n": 2}, upsert=True),
            DeleteOne({"k": 120, "_id": 120}),
            InsertOne({"_id": 5, "k": 5}),
            UpdateOne({"_id": 130}, {"$set": {"n": 3}}),
        ]
    )
    assert (done.matched_count, done.deleted_count, done.inserted_count) == (3, 1, 1)
    assert {row["_id"]: row["n"] for row in items.find({"n": {"$exists": True}})} == {0: 1, 110: 2, 130: 3}
    assert client.shop.command("count", "items")["n"] == 20


def test_what_does_not_name_its_document_is_refused(client: Client) -> None:
    items = client.shop.items
    items.insert_one({"_id": 1, "k": 1})
    with pytest.raises(WriteError) as upsert:
        items.update_one({"_id": 7}, {"$set": {"n": 1}}, upsert=True)
    with pytest.raises(OperationFailure) as neither:
        items.delete_one({"n": 7})
    assert upsert.value.code == neither.value.code == _SHARD_KEY_NOT_FOUND
    with pytest.raises(DuplicateKeyError):
        items.insert_one({"_id": 1, "k": 2})
    items.insert_one({"_id": 1, "k": 102})
    assert items.count_documents({"k": 102}) == 1, "an _id is unique on each shard only"
    with pytest.raises(BulkWriteError) as half:
        items.insert_many([{"_id": 2, "k": 2}, {"_id": 2, "k": 3}, {"_id": 103, "k": 103}], ordered=False)
    assert half.value.details["nInserted"] == 2
    assert half.value.details["writeErrors"][0]["index"] == 1
    with pytest.raises(OperationFailure, match="shard key"):
        items.update_one({"_id": 2, "k": 2}, {"$set": {"k": 9}})


def test_a_transaction_goes_over_shards(client: Client) -> None:
    items = client.shop.items
    items.insert_one({"_id": 1, "k": 1})
    with client.start_session() as session, session.start_transaction():
        items.delete_one({"_id": 1, "k": 1}, session=session)
        items.insert_one({"_id": 1, "k": 101}, session=session)
        assert [row["k"] for row in items.find({"_id": 1}, session=session)] == [101]
        assert [row["k"] for row in items.find({"_id": 1})] == [1]
    assert [row["k"] for row in items.find({"_id": 1})] == [101]
    with client.start_session() as session:
        session.start_transaction()
        items.delete_one({"_id": 1, "k": 101}, session=session)
        session.abort_transaction()
    assert [row["k"] for row in items.find({"_id": 1})] == [101]


def test_schema_and_plain_tables(client: Client) -> None:
    shop = client.shop
    shop.create_collection("plain")
    shop.plain.insert_one({"_id": 1, "k": 1})
    shop.plain.update_one({"_id": 2}, {"$set": {"k": 2}}, upsert=True)
    shop.items.create_index([("n", 1)], name="by_n")
    assert [index["name"] for index in shop.items.list_indexes()] == ["_id_", "k_1", "by_n"]
    shop.items.drop_index("by_n")
    shop.plain.rename("other")
    assert sorted(shop.list_collection_names()) == ["items", "other"]
    shop.other.drop()
    assert shop.list_collection_names() == ["items"]


def test_writes_by_whole_keys_lose_nothing_while_chunks_move(client: Client, cluster: ShardedCluster) -> None:
    items, over, written = client.shop.items, threading.Event(), 0
    items.insert_many([{"_id": number, "k": number, "n": 0} for number in range(0, 200, 10)])

    def move() -> None:
        with cluster.router() as router:
            ddl = ClusterDdl(router)
            while not over.is_set():
                for to in ("sa", "sb"):
                    ddl.move(NS, {"k": 100}, to, wait_for_delete=True)
                    moved.set()

    moved = threading.Event()
    mover = threading.Thread(target=move)
    mover.start()

    def goes_on() -> bool:
        nonlocal written
        written += 1
        changes = [UpdateOne({"_id": number, "k": number}, {"$inc": {"n": 1}}) for number in range(0, 200, 10)]
        assert items.bulk_write(changes, ordered=False).matched_count == 20
        return moved.is_set() and written >= 50

    try:
        assert wait_until(goes_on, 60)
    finally:
        over.set()
        mover.join()
    assert {row["n"] for row in items.find()} == {written}
