"""The DDL of a cluster as the owner sees it."""

from __future__ import annotations

import pytest

from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from source.sharded.cluster_clients import ClusterClients, reach_newest
from source.sharded.sharded_ddl_watch import ShardedDdlWatch

pytestmark = pytest.mark.since("6.0")


def shown(clients: ClusterClients, start: Position) -> list[DdlEvent]:
    """Up to now."""
    end_ts = reach_newest(clients)
    events: list[DdlEvent] = []
    with ShardedDdlWatch(clients, start) as watch:
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
    with cluster.router() as router, ClusterClients(cluster.config.uri) as clients:
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


def test_a_time_series_is_no_table_that_could_be_followed(cluster: ShardedCluster) -> None:
    with cluster.router() as router, ClusterClients(cluster.config.uri) as clients:
        ddl = ClusterDdl(router)
        ddl.create_database("metrics", primary="sa")
        start = Position(reach_newest(clients).next())
        command = {"create": "cpu", "timeseries": {"timeField": "t"}}
        router.wire("sa").command("metrics", {**command, **router.versions("metrics.cpu", "sa")})
        [event] = shown(clients, start)
        assert event.type is DdlType.UNKNOWN
        assert str(event.table) == "metrics.cpu"
        ddl.drop_database("metrics")
