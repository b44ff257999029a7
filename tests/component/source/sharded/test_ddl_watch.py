"""The DDL of a cluster as the owner sees it."""

from __future__ import annotations

import re
from contextlib import closing
from functools import partial
from operator import eq

import pytest
from bson.binary import UUID_SUBTYPE, Binary

from changefeed.documents.document import Document
from changefeed.errors import SourceUnsupported
from changefeed.event import SHARDING, DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableName
from devstack.mongodb.server import Client
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from source.sharded.cluster_clients import ClusterClients, reach_newest
from source.sharded.owned.cluster_catalog import read_cluster_catalog
from source.sharded.sharded_ddl_watch import ShardedDdlWatch
from tests.component.source.odd_texts import no_utf8

pytestmark = pytest.mark.since("6.0")


def shown(clients: ClusterClients, start: Position) -> list[DdlEvent]:
    """Up to now."""
    end_ts = reach_newest(clients)
    events: list[DdlEvent] = []
    with closing(ShardedDdlWatch(clients, start)) as watch:
        resolved = start
        while resolved.ts <= end_ts:
            reach_newest(clients)
            batch = watch.poll()
            assert batch.trouble is None
            assert batch.resolved <= batch.end
            resolved = batch.resolved
            events += batch.events
    positions = [event.position for event in events]
    assert positions == sorted(set(positions))
    return events


def test_an_event_names_the_uuid_of_its_time_wherever_a_watch_began(cluster: ShardedCluster) -> None:
    with cluster.router() as router, closing(ClusterClients(cluster.config.uri)) as clients:
        ddl = ClusterDdl(router)
        ddl.create_database("shop", primary="sa")
        router.insert("shop.a", {"_id": 1})
        router.insert("shop.b", {"_id": 1})
        start = Position(reach_newest(clients).next())
        ddl.move_primary("shop", "sb")
        ddl.create_index("shop.a", {"x": 1})
        middle = Position(reach_newest(clients).next())
        ddl.drop("shop.a")
        whole = shown(clients, start)
        of_a = [event for event in whole if str(event.table) == "shop.a"]
        assert [event.type for event in of_a] == [DdlType.NEW_UUID, DdlType.CREATE_INDEXES, DdlType.DROP]
        moved, built, dropped = of_a
        new = moved.description.decode()["uuid"]
        assert (built.id, dropped.id) == (new, new)
        assert moved.id not in (None, new)
        assert [event.position.ts for event in whole if event.type is DdlType.NEW_UUID] == 2 * [moved.position.ts]
        assert shown(clients, middle) == [event for event in whole if event.position >= middle]
        assert shown(clients, built.position) == [event for event in whole if event.position >= built.position]
        ddl.drop_database("shop")


def test_another_shard_key_is_shown_once_wherever_a_watch_began(cluster: ShardedCluster) -> None:
    with cluster.router() as router, closing(ClusterClients(cluster.config.uri)) as clients:
        ddl = ClusterDdl(router)
        ddl.create_database("shop", primary="sa")
        router.insert("shop.a", {"_id": 1, "k": 1, "j": 1})
        ddl.create_index("shop.a", {"k": 1})
        ddl.create_index("shop.a", {"k": 1, "j": 1})
        ddl.create_index("shop.a", {"j": 1})
        start = Position(reach_newest(clients).next())
        ddl.shard("shop.a", {"k": 1})
        ddl.split("shop.a", {"k": 5})
        ddl.move("shop.a", {"k": 5}, "sb")
        ddl.refine("shop.a", {"k": 1, "j": 1})
        ddl.rename("shop.a", "shop.b")
        ddl.modify("shop.b", validationLevel="moderate")
        ddl.reshard("shop.b", {"j": 1}, numInitialChunks=1)
        ddl.move_primary("shop", "sb")
        whole = shown(clients, start)
        assert [event.type for event in whole] == [
            DdlType.SHARD_COLLECTION,
            DdlType.REFINE_SHARD_KEY,
            DdlType.RENAME,
            DdlType.MODIFY,
            DdlType.RESHARD_COLLECTION,
            DdlType.NEW_UUID,
        ]
        told = [event for event in whole if event.type in SHARDING]
        assert [each.description.decode()["shardKey"] for each in told] == [{"k": 1}, {"k": 1, "j": 1}, {"j": 1}]
        for number, event in enumerate(told):
            assert [each for each in shown(clients, event.position) if each.type in SHARDING] == told[number:]
        [table] = read_cluster_catalog(clients, partial(eq, TableName("shop", "b"))).tables
        assert table.shard_key == Document.of({"j": 1})
        ddl.drop_database("shop")


def test_a_time_series_is_no_table_that_could_be_followed(cluster: ShardedCluster) -> None:
    with cluster.router() as router, closing(ClusterClients(cluster.config.uri)) as clients:
        ddl = ClusterDdl(router)
        ddl.create_database("metrics", primary="sa")
        start = Position(reach_newest(clients).next())
        command = {"create": "cpu", "timeseries": {"timeField": "t"}}
        router.wire("sa").command("metrics", {**command, **router.versions("metrics.cpu", "sa")})
        [event] = shown(clients, start)
        assert event.type is DdlType.UNKNOWN
        assert str(event.table) == "metrics.cpu"
        ddl.drop_database("metrics")


def test_texts_that_are_no_utf8_and_records_that_contradict_each_other_concern_their_tables_alone(
    cluster: ShardedCluster,
) -> None:
    with (
        cluster.router() as router,
        closing(ClusterClients(cluster.config.uri)) as clients,
        Client(cluster.shards["sa"].uri) as shard,
        Client(cluster.config.uri) as config,
    ):
        ddl = ClusterDdl(router)
        ddl.create_database("odd", primary="sa")
        for name in ("strict", "indexed", "plain", "gone"):
            router.insert(f"odd.{name}", {"_id": 1})
        start = Position(reach_newest(clients).next())
        odd = shard["odd"]
        odd.command("collMod", "strict", validator=no_utf8({"a": {"$ne": "caf?"}}))
        index = no_utf8({"key": {"a": 1}, "name": "a_1", "partialFilterExpression": {"a": "caf?"}})
        odd.command("createIndexes", "indexed", indexes=[index])
        named = {"op": "c", "ns": "odd.$cmd", "o": no_utf8({"create": "caf?"})}
        shard.admin.command("applyOps", [named])
        shard.admin.command("applyOps", [{**named, "o": no_utf8({"renameCollection": "odd.gone", "to": "odd.tsch?"})}])
        ghost = {"_id": "odd.ghost", "uuid": Binary(b"g" * 16, UUID_SUBTYPE)}
        config["config"]["collections"].insert_many([ghost, {"_id": "nothing"}])
        ddl.create_index("odd.plain", {"x": 1})
        whole = shown(clients, start)
        assert {(event.type.value, str(event.table), str(event.renamed_to or "")) for event in whole} == {
            ("unknown", "odd.strict", ""),
            ("unknown", "odd.indexed", ""),
            ("unknown", r"odd.caf\xe9", ""),
            ("unknown", "odd.gone", r"odd.tsch\xe9"),
            ("unknown", "odd.ghost", ""),
            ("createIndexes", "odd.plain", ""),
        }
        assert shown(clients, whole[-1].position) == whole[-1:]
        assert shown(clients, Position(reach_newest(clients).next())) == []
        read = read_cluster_catalog(clients, lambda name: name.coll == "plain" and name.db == "odd")
        assert [str(table.name) for table in read.tables] == ["odd.plain"]
        for coll in ("strict", "indexed", r"caf\xe9"):
            with pytest.raises(SourceUnsupported, match=f"odd.{re.escape(coll)}: expected .* UTF-8"):
                read_cluster_catalog(clients, partial(eq, TableName("odd", coll)))
        config["config"]["collections"].delete_many({"_id": {"$in": ["odd.ghost", "nothing"]}})
        ddl.drop_database("odd")
