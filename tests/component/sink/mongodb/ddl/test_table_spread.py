"""A new table is sharded at the target, and divided among its shards, as the source does it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from bson.max_key import MaxKey
from bson.min_key import MinKey

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import EMPTY, Document
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Observation, Scope
from changefeed.table import TableId, TableName, TableSchema, specification
from changefeed.table_layout import TableLayout, ZoneRange
from devstack.mongodb.server import Client
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.served.router_server import RouterServer
from processor.copy.target_table import Creation, build_indexes, prepare
from sink.ddl import CreateTable, ShardTable, shard_copy
from sink.mongodb.ddl.ddl_applier import MongoDdlApplier
from sink.mongodb.rows.document_loader import MongoDocumentLoader
from sink.row import TargetTable
from source.connection import connect
from source.tables.catalog import read_layout
from tests.component.sink.mongodb.rows.written_rows import permit

pytestmark = pytest.mark.since("6.0")
AT = Position(ClusterTime(5, 1))
SOURCE, COPY = TableName("shop", "items"), TableName("copy", "items")
_ID = Document.of({"v": 2, "key": {"_id": 1}, "name": "_id_"})


@pytest.fixture(scope="module")
def router(cluster: ShardedCluster) -> Iterator[Client]:
    with RouterServer(cluster) as server, Client(server.uri) as client:
        yield client


@pytest.fixture
def client(router: Client) -> Iterator[Client]:
    yield router
    for name in ("shop", "copy"):
        router.drop_database(name)


def layout(key: dict[str, Any], *bounds: dict[str, Any], **more: Any) -> TableLayout:
    return TableLayout(key=Document.of(key), bounds=tuple(map(Document.of, bounds)), **more)


def prepared(client: Client, found: TableLayout | None, *indexes: dict[str, Any], kept: bool = False) -> None:
    """As the copy of a table begins."""
    specs = tuple(specification({"v": 2, **index}) for index in indexes)
    schema = TableSchema(id=TableId("ab" * 16), name=SOURCE, indexes=(_ID, *specs), valid_from=AT)
    creation = Creation(schema=schema, name=COPY, route=lambda _: COPY, layout=found, kept=kept)
    applier = MongoDdlApplier(client, permit=permit)
    table = TargetTable(id=schema.id, source=SOURCE, name=COPY)
    for _ in range(2):
        loader = MongoDocumentLoader(client, table=table, once=False, permit=permit)
        prepare(creation, applier, loader, applier.observe([COPY]), ours=False)
    build_indexes(creation, applier)


def entry(client: Client) -> dict[str, Any] | None:
    return client.config.collections.find_one({"_id": str(COPY)})


def chunks(client: Client) -> list[tuple[Any, str]]:
    """Where each begins, and its shard."""
    found = entry(client)
    assert found is not None
    return [
        (each["min"], each["shard"]) for each in client.config.chunks.find({"uuid": found["uuid"]}, sort=[("min", 1)])
    ]


def names(client: Client) -> Sequence[str]:
    return [index["name"] for index in client.copy.items.list_indexes()]


def test_the_chunks_of_the_source_are_folded_and_spread(client: Client) -> None:
    bounds = [{"k": 10 * number} for number in range(1, 100)]
    prepared(
        client, layout({"k": 1}, *bounds), {"key": {"k": 1, "n": 1}, "name": "by k"}, {"key": {"n": 1}, "name": "n"}
    )
    found = chunks(client)
    assert len(found) == 32
    assert [shard for _, shard in found] == [*["sa"] * 16, *["sb"] * 16]
    assert found[0][0] == {"k": MinKey()}
    assert {begin["k"] for begin, _ in found[1:]} < {bound["k"] for bound in bounds}
    assert names(client) == ["_id_", "by k", "n"], "the target has made none for the shard key"


def test_a_hashed_and_a_unique_key_are_taken_over(client: Client) -> None:
    prepared(client, layout({"k": "hashed"}, {"k": 5}))
    found = entry(client)
    assert found is not None
    assert found["key"] == {"k": "hashed"}
    assert {shard for _, shard in chunks(client)} == {"sa", "sb"}
    client.drop_database("copy")
    prepared(client, layout({"k": 1, "a.b": 1}, unique=True), {"key": {"k": 1, "a.b": 1}, "name": "u", "unique": True})
    found = entry(client)
    assert found is not None
    assert (found["key"], found["unique"]) == ({"k": 1, "a.b": 1}, True)
    assert names(client) == ["_id_", "u"]


def test_zones_that_a_shard_of_the_target_has_are_taken_over(client: Client) -> None:
    client.admin.command("addShardToZone", "sb", zone="eu")
    zones = [
        ZoneRange(lower=Document.of({"k": low}), upper=Document.of({"k": high}), zone=zone)
        for low, high, zone in ((MinKey(), 5, "eu"), (5, MaxKey(), "us"))
    ]
    prepared(client, layout({"k": 1}, {"k": 5}, zones=tuple(zones)))
    assert [(each["min"]["k"], each["tag"]) for each in client.config.tags.find({"ns": str(COPY)})] == [
        (MinKey(), "eu")
    ]
    assert chunks(client)[0] == ({"k": MinKey()}, "sb")


def test_what_a_user_has_sharded_otherwise_stays(client: Client) -> None:
    client.admin.command("shardCollection", str(COPY), key={"n": 1})
    prepared(client, layout({"k": 1}, {"k": 5}))
    found = entry(client)
    assert found is not None
    assert found["key"] == {"n": 1}
    applier = MongoDdlApplier(client, permit=permit)
    share = shard_copy(COPY, layout({"k": 1}))
    assert "stays so" in applier.apply(share, applier.observe([COPY]))


def test_a_table_with_rows_that_are_kept_is_not_sharded(client: Client) -> None:
    client.copy.items.insert_one({"_id": 1, "k": 1})
    prepared(client, layout({"k": 1}), kept=True)
    assert entry(client) is None
    client.drop_database("copy")
    prepared(client, layout({"k": 1}), kept=True)
    assert entry(client) is not None


def test_a_create_that_was_interrupted_before_its_sharding_is_sharded_when_it_is_done_again(client: Client) -> None:
    """Twice: another owner may be interrupted, too."""
    client.copy.create_collection("items")
    event = DdlEvent(position=AT, type=DdlType.CREATE, db="shop", table=SOURCE, id=TableId("ab" * 16))
    record = DdlRecord(event=event, scope=Scope(), state=DdlState.EXECUTING, seen_at=datetime.now(UTC))
    found = layout({"k": 1}, {"k": 10})
    applier = MongoDdlApplier(client, permit=permit, layout_of=lambda _: found)
    create = CreateTable(name=COPY, options=EMPTY)
    for _ in range(2):
        assert applier.apply(create, Observation(tables={COPY: None}), record) == "it was done already"
        assert chunks(client) == [({"k": MinKey()}, "sa"), ({"k": 10}, "sb")]


def test_a_sharding_of_the_source_is_repeated_only_if_the_target_is_to_be_sharded(client: Client) -> None:
    client.copy.create_collection("items")
    shard = ShardTable(name=COPY, how=DdlType.SHARD_COLLECTION, description=Document.of({"shardKey": {"k": 1}}))
    applied = MongoDdlApplier(client, permit=permit)
    assert applied.apply(shard, applied.observe([COPY])) == "shard_target is false"
    assert entry(client) is None
    applied = MongoDdlApplier(client, permit=permit, layout_of=lambda _: None)
    assert applied.apply(shard, applied.observe([COPY])) == ""
    assert (entry(client) or {})["key"] == {"k": 1}


def test_the_source_says_how_it_shards_a_table(client: Client, cluster: ShardedCluster) -> None:
    client.admin.command("addShardToZone", "sb", zone="eu")
    client.admin.command("shardCollection", str(SOURCE), key={"k": 1})
    client.admin.command("split", str(SOURCE), middle={"k": 5})
    client.admin.command("updateZoneKeyRange", str(SOURCE), min={"k": 7}, max={"k": 9}, zone="eu")
    client.shop.plain.insert_one({})
    schema = TableSchema(id=TableId("ab" * 16), name=SOURCE, valid_from=AT)
    zone = ZoneRange(lower=Document.of({"k": 7}), upper=Document.of({"k": 9}), zone="eu")
    with connect(cluster.config.uri, capture=None) as config:
        assert read_layout(config, schema) == layout({"k": 1}, {"k": 5}, zones=(zone,))
        plain = TableSchema(id=TableId("cd" * 16), name=TableName("shop", "plain"), valid_from=AT)
        assert read_layout(config, plain) is None
