"""A verification of a real sharded cluster: what its shards own, each range at one time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import bson
import pytest
from bson.max_key import MaxKey

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from devstack.mongodb.server import Client
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.router import ClusterRouter
from devstack.sharded.wire import MAJORITY
from sink.mongodb.connection import connect as connect_to_target
from source.opening import open_compared
from tests.component.verify.verified import Heard, Verified
from verify.report import Aspect, Outcome
from verify.verification import Verification, Wishes

pytestmark = pytest.mark.since("6.0")

DB, ORDERS = "compared", "compared.orders"
_DOCUMENTS = 3_000
_SMALL_RANGES = Wishes(range_bytes=40_000)


@pytest.fixture(scope="module")
def filled(cluster: ShardedCluster) -> ShardedCluster:
    with cluster.router() as router:
        ddl = ClusterDdl(router)
        ddl.create_database(DB, primary="sa")
        ddl.shard(ORDERS, {"k": 1})
        ddl.split(ORDERS, {"k": 3}, {"k": 6})
        ddl.move(ORDERS, {"k": 6}, "sb")
        router.refresh()
        _insert(router, [{"_id": number, "k": number % 10} for number in range(_DOCUMENTS)])
        router.insert(f"{DB}.plain", {"_id": 1})
    return cluster


@pytest.fixture
def target(filled: ShardedCluster, target_client: Client) -> Iterator[Any]:
    """It has what the cluster has."""
    with filled.router() as router:
        target_client[DB].orders.insert_many(router.rows(ORDERS))
        target_client[DB].plain.insert_many(router.rows(f"{DB}.plain"))
    target_client[DB].orders.create_index("k")
    yield target_client[DB]
    target_client.drop_database(DB)


Compare = Callable[..., Verified]


@pytest.fixture
def compare(filled: ShardedCluster, target_uri: str) -> Iterator[Compare]:
    fields = {"id": "f", "source": filled.config.uri, "sink": target_uri, "filter": {"tables": [f"{DB}.*"]}}
    with (
        closing(open_compared(filled.config.uri, Capture.SHARD_OPLOGS)) as source,
        connect_to_target(target_uri) as target,
    ):

        def run(wishes: Wishes | None = None) -> Verified:
            heard = Heard()
            verification = Verification(Configuration.parse(fields), source, target, heard, wishes or Wishes())
            return Verified(verification.run(), heard)

        yield run


def _insert(router: ClusterRouter, rows: list[dict[str, Any]]) -> None:
    by_shard: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_shard.setdefault(router.route(ORDERS).owner(row), []).append(row)
    for shard, documents in by_shard.items():
        command = {"insert": "orders", "documents": documents, "writeConcern": MAJORITY}
        router.wire(shard).command(DB, {**command, **router.versions(ORDERS, shard)})


def test_documents_are_compared_while_chunks_move(filled: ShardedCluster, target: Any, compare: Compare) -> None:
    over = threading.Event()
    moves: list[str] = []

    def move() -> None:
        with filled.router() as router:
            ddl = ClusterDdl(router)
            while not over.is_set():
                for point in (0, 4, 8):
                    router.refresh()
                    to = "sb" if router.route(ORDERS).owner({"k": point}) == "sa" else "sa"
                    ddl.move(ORDERS, {"k": point}, to)
                    moves.append(to)

    moving = threading.Thread(target=move)
    moving.start()
    try:
        while len(moves) < 4:
            assert moving.is_alive()
            verified = compare(_SMALL_RANGES)
            assert verified.report.outcome is Outcome.EQUAL, verified.report
            documents = verified.table("orders").documents
            assert documents is not None
            assert (documents.source, documents.target) == (_DOCUMENTS, _DOCUMENTS)
            assert verified.heard.steps[-1].ranges > 2
    finally:
        over.set()
        moving.join()


def test_what_differs_is_found_on_every_shard(filled: ShardedCluster, target: Any, compare: Compare) -> None:
    for key in (7, 8):  # on either side of a split
        target.orders.update_one({"_id": key}, {"$set": {"v": 1}})
        target.orders.delete_one({"_id": key + 1_000})
    target.orders.insert_one({"_id": -1})
    target.orders.insert_one({"_id": MaxKey()})
    target.plain.delete_one({"_id": 1})
    verified = compare()
    documents = verified.table("orders").documents
    assert documents is not None
    assert {(each.kind.value, each.key) for each in documents.differences} == {
        ("changed", "7"),
        ("changed", "8"),
        ("missing", "1007"),
        ("missing", "1008"),
        ("extra", "-1"),
        ("extra", '{"$maxKey": 1}'),
    }
    assert verified.result("plain", Aspect.DOCUMENTS).outcome is Outcome.DIFFERENT


def test_documents_that_a_shard_does_not_own_do_not_count(
    filled: ShardedCluster, target: Any, compare: Compare
) -> None:
    with filled.router() as router:
        router.refresh()
        owner = router.route(ORDERS).owner({"k": 0})
    other = next(name for name in filled.shards if name != owner)
    with filled.shards[other].client() as shard:
        shard[DB].orders.insert_one({"_id": "an orphan", "k": 0})
    assert compare().report.outcome is Outcome.EQUAL


def test_an_id_that_two_shards_have_is_a_difference(filled: ShardedCluster, target: Any, compare: Compare) -> None:
    with filled.router() as router:
        router.refresh()
        keys = {router.route(ORDERS).owner({"k": k}): k for k in range(10)}
        twice = [{"_id": 77_777, "k": k} for k in keys.values()]
        assert len(twice) == 2
        _insert(router, twice)
        target.orders.insert_one(twice[0])
        try:
            documents = compare().table("orders").documents
        finally:
            for row in twice:
                router.delete(ORDERS, row, writeConcern=MAJORITY)
    assert documents is not None
    assert [(each.key, each.details) for each in documents.differences] == [
        ("77777", ("the source has 2 documents of this key, the target 1",))
    ]


def test_a_capped_collection_is_compared(filled: ShardedCluster, target: Any, compare: Compare) -> None:
    with filled.router() as router:
        router.refresh()
        versions = router.versions(f"{DB}.log", "sa")
        command = {"create": "log", "capped": True, "size": 1 << 20, "writeConcern": MAJORITY}
        router.wire("sa").command(DB, {**command, "databaseVersion": versions["databaseVersion"]})
        router.insert(f"{DB}.log", {"_id": 1}, writeConcern=MAJORITY)
        target.create_collection("log", capped=True, size=1 << 20)
        assert compare().result("log", Aspect.DOCUMENTS).outcome is Outcome.DIFFERENT
        target.log.insert_one(bson.decode(bson.encode({"_id": 1})))
        assert compare().report.outcome is Outcome.EQUAL
        ClusterDdl(router).drop(f"{DB}.log")
