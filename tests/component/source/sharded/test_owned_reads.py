"""Documents of a cluster at one time, while chunks move: each once, whichever shard has it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import pairwise

import bson
import pytest
from bson.binary import UUID_SUBTYPE, Binary
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.max_key import MaxKey
from pymongo import WriteConcern

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.documents.row_key import KeyRange
from changefeed.errors import DuplicateId, SourceUnavailable
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.router import ClusterRouter
from devstack.sharded.wire import MAJORITY
from source.sharded.cluster_clients import ClusterClients, reach, reach_newest
from source.sharded.owned import owned_find
from source.sharded.owned.cluster_catalog import read_cluster_catalog
from source.sharded.owned.owned_chunks import OwnedChunk
from source.sharded.source import ShardedSource
from source.tables.chunk_reader import Chunk

pytestmark = pytest.mark.since("6.0")

ORDERS = TableName("shop", "orders")
_DOCUMENTS = 12_000
DATES_AS_THEY_ARE = CodecOptions(dict, datetime_conversion=DatetimeConversion.DATETIME_MS)


@pytest.fixture(scope="module")
def filled(cluster: ShardedCluster) -> ShardedCluster:
    with cluster.router() as router:
        ddl = ClusterDdl(router)
        ddl.create_database("shop", primary="sa")
        ddl.shard(str(ORDERS), {"k": 1})
        ddl.split(str(ORDERS), {"k": 3}, {"k": 6})
        ddl.move(str(ORDERS), {"k": 6}, "sb")
        router.refresh()
        _insert(router, ({"_id": number, "k": number % 10} for number in range(_DOCUMENTS)))
    return cluster


def _insert(router: ClusterRouter, rows: Iterator[Mapping[str, object]]) -> None:
    by_shard: dict[str, list[Mapping[str, object]]] = {}
    for row in rows:
        by_shard.setdefault(router.route(str(ORDERS)).owner(row), []).append(row)
    for shard, documents in by_shard.items():
        for begin in range(0, len(documents), 1_000):
            part = {"insert": ORDERS.coll, "documents": documents[begin : begin + 1_000], "writeConcern": MAJORITY}
            router.wire(shard).command(ORDERS.db, {**part, **router.versions(str(ORDERS), shard)})


@pytest.fixture
def clients(filled: ShardedCluster) -> Iterator[ClusterClients]:
    with closing(ClusterClients(filled.config.uri)) as clients:
        yield clients


def chunk_of(clients: ClusterClients, lower: int | None = None, upper: int | None = None) -> Chunk:
    bounds = [None if bound is None else Document.of({"_id": bound}) for bound in (lower, upper)]
    not_before = Position(reach_newest(clients))
    return Chunk(table=ORDERS, range=KeyRange(lower=bounds[0], upper=bounds[1]), not_before=not_before)


def ids(chunk: OwnedChunk) -> list[int]:
    return [bson.decode(document)["_id"] for batch in chunk.batches() for document in batch]


def test_chunks_that_move_meanwhile_are_read_once(filled: ShardedCluster, clients: ClusterClients) -> None:
    over = threading.Event()
    moves: list[str] = []

    def move() -> None:
        with filled.router() as router:
            ddl = ClusterDdl(router)
            while not over.is_set():
                for point in (0, 4, 8):
                    router.refresh()
                    to = "sb" if router.route(str(ORDERS)).owner({"k": point}) == "sa" else "sa"
                    ddl.move(str(ORDERS), {"k": point}, to)
                    moves.append(to)

    moving = threading.Thread(target=move)
    moving.start()
    try:
        reads = 0
        while len(moves) < 6 or reads < 6:
            assert moving.is_alive()
            for lower, upper in ((None, 4_000), (4_000, 9_000), (9_000, None)):
                found = ids(OwnedChunk(clients, chunk_of(clients, lower, upper)))
                assert sorted(found) == list(range(lower or 0, upper or _DOCUMENTS))
                reads += 1
    finally:
        over.set()
        moving.join()


def test_batches_may_be_cut_between_any_two(clients: ClusterClients) -> None:
    batches = list(OwnedChunk(clients, chunk_of(clients)).batches())
    keys = [[bson.decode(document)["_id"] for document in batch] for batch in batches]
    assert len(batches) > 1
    for one, following in pairwise(keys):
        assert one[-1] == max(one)
        assert following[0] == min(following)
        assert one[-1] < following[0]


def test_one_id_on_two_shards_is_an_error_that_names_both(filled: ShardedCluster, clients: ClusterClients) -> None:
    with filled.router() as router:
        router.refresh()
        keys = {router.route(str(ORDERS)).owner({"k": k}): k for k in range(10)}
        assert keys.keys() == {"sa", "sb"}
        _insert(router, ({"_id": 77_777, "k": k} for k in keys.values()))
        with pytest.raises(
            DuplicateId, match=r"shards s[ab] and s[ab] of the source each have a document with _id 77777"
        ):
            ids(OwnedChunk(clients, chunk_of(clients)))
        [orders] = read_cluster_catalog(clients, lambda name: name == ORDERS).tables
        source, key, now = ShardedSource(clients), bson.encode({"_id": 77_777}), reach_newest(clients)
        with pytest.raises(DuplicateId, match=r"shards sa and sb .* 77777") as refused:
            source.row(ORDERS, (orders.id,), key, not_before=now, of_another=nobody)
        assert refused.value.table == orders.id
        for k in keys.values():
            router.delete(str(ORDERS), {"_id": 77_777, "k": k}, writeConcern=MAJORITY)


def test_dates_that_python_cannot_hold_are_put_in_order_too(filled: ShardedCluster, clients: ClusterClients) -> None:
    """Of two shards. From year 10,000 on."""
    dates = [DatetimeMS(400_000_000_000_000 + number) for number in range(10)]
    with filled.router() as router:
        router.refresh()
        _insert(router, ({"_id": date, "k": k} for k, date in enumerate(dates)))
        read = OwnedChunk(clients, chunk_of(clients, _DOCUMENTS))
        found = [bson.decode(document, DATES_AS_THEY_ARE) for batch in read.batches() for document in batch]
        assert sorted(document["_id"] for document in found) == dates
        assert (found[0]["_id"], found[-1]["_id"]) == (dates[0], dates[-1])
        for document in found:
            router.delete(str(ORDERS), document, writeConcern=MAJORITY)


def test_a_row_is_found_wherever_it_is(clients: ClusterClients) -> None:
    source = ShardedSource(clients)
    [orders] = read_cluster_catalog(clients, lambda name: name == ORDERS).tables
    now = reach_newest(clients)
    for id in (1, 8):
        row = source.row(ORDERS, (orders.id,), bson.encode({"_id": id}), not_before=now, of_another=nobody)
        assert row is not None
        assert row.document is not None
        assert bson.decode(row.document)["k"] == id
        assert row.read_ts >= now
    gone = source.row(ORDERS, (orders.id,), bson.encode({"_id": -1}), not_before=now, of_another=nobody)
    assert gone is not None
    assert gone.document is None


def test_a_capped_table_is_read_in_its_order_between_two_times(filled: ShardedCluster, clients: ClusterClients) -> None:
    """No server reads it at an earlier time."""
    name, key = TableName("shop", "recent"), bson.encode({"_id": 3})
    with filled.router() as router:
        capped = {"create": name.coll, "capped": True, "size": 1 << 20}
        router.wire("sa").command(name.db, {**capped, **router.versions(str(name), "sa")})
        for number in (5, 3, 9):
            router.insert(str(name), {"_id": number})
        now = reach_newest(clients)
        read = OwnedChunk(clients, Chunk(table=name, whole=True, not_before=Position(now)))
        batches = read.batches()
        first = next(batches)
        router.insert(str(name), {"_id": 1})
        inserted = reach_newest(clients)
        found = [bson.decode(each)["_id"] for documents in (first, *batches) for each in documents]
        assert found == [5, 3, 9]
        assert now <= read.after < inserted <= read.until
        [table] = read_cluster_catalog(clients, lambda each: each == name).tables
        row = ShardedSource(clients).row(name, (table.id,), key, not_before=now, of_another=nobody)
        assert row is not None
        assert row.document == key
        assert row.read_ts >= now
        ClusterDdl(router).drop(str(name))


def test_the_catalog_has_each_table_once_with_the_indexes_of_all_owners(
    filled: ShardedCluster, clients: ClusterClients
) -> None:
    with filled.router() as router:
        command = {
            "createIndexes": ORDERS.coll,
            "indexes": [{"key": {"x": 1}, "name": "x_1"}],
            "writeConcern": MAJORITY,
        }
        router.wire("sa").command(ORDERS.db, {**command, **router.versions(str(ORDERS), "sa")})

        def table() -> TableSchema:
            [found] = read_cluster_catalog(clients, lambda name: name.db == ORDERS.db).tables
            return found

        assert [index.decode()["name"] for index in table().indexes] == ["_id_", "k_1"]
        router.wire("sb").command(ORDERS.db, {**command, **router.versions(str(ORDERS), "sb")})
        assert [index.decode()["name"] for index in table().indexes] == ["_id_", "k_1", "x_1"]
        assert table().name == ORDERS


def test_a_table_that_is_being_renamed_over_a_sharded_one_is_not_left_out(
    filled: ShardedCluster, clients: ClusterClients
) -> None:
    """The database's primary shard has it under the name that means another one to the config servers, until they are told."""
    with filled.router() as router, filled.config.client() as config:
        ddl = ClusterDdl(router)
        ddl.create_database("renamed", primary="sa")
        ddl.shard("renamed.sharded", {"k": 1})
        before = config["config"]["collections"].find_one({"_id": "renamed.sharded"})
        assert before is not None

        def names() -> list[str]:
            return [
                table.name.coll for table in read_cluster_catalog(clients, lambda name: name.db == "renamed").tables
            ]

        replaced = {**before, "uuid": Binary(uuid.uuid4().bytes, UUID_SUBTYPE)}
        collections = config["config"].get_collection("collections", write_concern=WriteConcern("majority"))
        collections.replace_one({"_id": "renamed.sharded"}, replaced)
        with pytest.raises(SourceUnavailable, match="shard sa has another table named"):
            names()
        collections.replace_one({"_id": "renamed.sharded"}, before)
        assert names() == ["sharded"]
        ddl.drop("renamed.sharded")


def test_a_table_that_is_renamed_between_its_time_and_its_read_is_not_taken_for_an_empty_one(
    filled: ShardedCluster, clients: ClusterClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not sharded: its shard finds nothing under the old name, also at a time at which the table had it."""
    old, new = TableName("shop", "plain"), TableName("shop", "named anew")
    with filled.router() as router:
        router.insert(str(old), {"_id": 1})
        chunk = Chunk(table=old, range=KeyRange(), not_before=Position(reach_newest(clients)))

        def reach_and_rename(clients: ClusterClients, at_least_ts: ClusterTime) -> ClusterTime:
            at_ts = reach(clients, at_least_ts)
            monkeypatch.undo()
            ClusterDdl(router).rename(str(old), str(new))
            return at_ts

        monkeypatch.setattr(owned_find, "reach", reach_and_rename)
        read = OwnedChunk(clients, chunk)
        assert ids(read) == []
        assert read.after < renamed_at(filled, old) <= read.until


def test_a_table_that_is_renamed_before_its_last_key_is_read_is_not_taken_for_one_without_it(
    filled: ShardedCluster, clients: ClusterClients
) -> None:
    """MaxKey is read apart, after the rest of the last chunk. So the table has lost its name to that read only."""
    old, new = TableName("shop", "to the last"), TableName("shop", "to the last anew")
    with filled.router() as router:
        router.insert(str(old), {"_id": 1})
        router.insert(str(old), {"_id": MaxKey()})
        last = KeyRange(lower=Document.of({"_id": 1}))
        read = OwnedChunk(clients, Chunk(table=old, range=last, not_before=Position(reach_newest(clients))))
        batches = read.batches()
        assert [bson.decode(document)["_id"] for document in next(batches)] == [1]
        ClusterDdl(router).rename(str(old), str(new))
        assert b"".join(document for batch in batches for document in batch) == b""
        assert read.after < renamed_at(filled, old) <= read.until


def test_a_chunk_whose_table_is_renamed_between_two_replies_is_read_again(
    filled: ShardedCluster, clients: ClusterClients
) -> None:
    old, new = TableName("shop", "of two replies"), TableName("shop", "of two replies anew")
    with filled.router() as router:
        router.insert(str(old), {"_id": 0})
        rows = [{"_id": number} for number in range(1, 6_000)]
        command = {"insert": old.coll, "documents": rows, "writeConcern": MAJORITY}
        router.wire("sa").command(old.db, {**command, **router.versions(str(old), "sa")})
        batches = OwnedChunk(clients, Chunk(table=old, not_before=Position(reach_newest(clients)))).batches()
        assert len(next(batches)) == 5_000
        ClusterDdl(router).rename(str(old), str(new))
        with pytest.raises(SourceUnavailable, match="the chunk is read again"):
            list(batches)


def test_a_row_whose_table_is_renamed_just_before_it_is_read_is_not_taken_for_one_that_is_gone(
    filled: ShardedCluster, clients: ClusterClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = TableName("shop", "of a row"), TableName("shop", "of a row anew")
    with filled.router() as router:
        router.insert(str(old), {"_id": 1})
        [table] = read_cluster_catalog(clients, lambda name: name == old).tables

        def reach_and_rename(clients: ClusterClients, at_least_ts: ClusterTime) -> ClusterTime:
            monkeypatch.undo()
            ClusterDdl(router).rename(str(old), str(new))
            return reach(clients, at_least_ts)

        monkeypatch.setattr(owned_find, "reach", reach_and_rename)
        row = ShardedSource(clients).row(
            old, (table.id,), bson.encode({"_id": 1}), not_before=reach_newest(clients), of_another=nobody
        )
        assert row is not None
        assert row.document == bson.encode({"_id": 1})


def test_a_database_that_moves_once_its_owner_is_known_is_not_read_in_part(
    filled: ShardedCluster, clients: ClusterClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a time before the end of a movePrimary the new primary shard has a part of the documents: so the owner is learnt before the time."""
    name = TableName("moving", "plain")
    with filled.router() as router:
        ClusterDdl(router).create_database(name.db, primary="sa")
        for number in range(50):
            router.insert(str(name), {"_id": number})
        chunk = Chunk(table=name, range=KeyRange(), not_before=Position(reach_newest(clients)))

        def move_and_reach(clients: ClusterClients, at_least_ts: ClusterTime) -> ClusterTime:
            monkeypatch.undo()
            ClusterDdl(router).move_primary(name.db, "sb")
            reach(clients, at_least_ts)
            moved = {"find": "oplog.rs", "filter": {"ns": str(name), "op": "i", "fromMigrate": True}}
            entries = filled.shards["sb"].client().local.command(moved)["cursor"]["firstBatch"]
            return ClusterTime.from_bson(entries[len(entries) // 2]["ts"])

        monkeypatch.setattr(owned_find, "reach", move_and_reach)
        assert ids(OwnedChunk(clients, chunk)) == list(range(50))


def test_a_row_is_not_read_from_a_table_that_is_known_to_have_the_name_since(
    filled: ShardedCluster, clients: ClusterClients
) -> None:
    """Nor from one of which nobody has heard: it may be another table, or the same one after a resharding or a movePrimary."""
    name, key = TableName("shop", "made anew"), bson.encode({"_id": 1})
    with filled.router() as router:
        router.insert(str(name), {"_id": 1, "of": "the old one"})
        [old] = read_cluster_catalog(clients, lambda each: each == name).tables
        ClusterDdl(router).drop(str(name))
        router.insert(str(name), {"_id": 1, "of": "the new one"})
        [new] = read_cluster_catalog(clients, lambda each: each == name).tables
    source, now = ShardedSource(clients), reach_newest(clients)
    assert source.row(name, (old.id,), key, not_before=now, of_another={new.id}.__contains__) is None
    with pytest.raises(SourceUnavailable, match="no DDL has said yet"):
        source.row(name, (old.id,), key, not_before=now, of_another=nobody)


def nobody(_: TableId) -> bool:
    return False


def renamed_at(filled: ShardedCluster, old: TableName) -> ClusterTime:
    """The newest: the cluster's oplogs keep what the modules before this one did under the same names."""
    newest = {"sort": {"$natural": -1}, "limit": 1}
    renamed = {"find": "oplog.rs", "filter": {"o.renameCollection": str(old)}, **newest}
    [entry] = filled.shards["sa"].client().local.command(renamed)["cursor"]["firstBatch"]
    return ClusterTime.from_bson(entry["ts"])
