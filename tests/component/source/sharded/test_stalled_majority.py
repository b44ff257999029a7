"""A shard whose majority stands still while its primary goes on: no read fails, and nothing new is shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from changefeed.errors import SourceMajorityStalled
from changefeed.position import Position
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from source.sharded.cluster_clients import ClusterClients, reach_newest
from source.sharded.sharded_ddl_watch import ShardedDdlWatch
from tests.until import until

pytestmark = [pytest.mark.since("6.0"), pytest.mark.soak]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ShardedCluster]:
    with ShardedCluster(tmp_path / "data", tmp_path / "log", members=3) as cluster:
        yield cluster


def test_it_is_named_and_the_history_goes_on_when_the_majority_does(cluster: ShardedCluster) -> None:
    with cluster.router() as router, closing(ClusterClients(cluster.config.uri)) as clients:
        ddl = ClusterDdl(router)
        ddl.create_database("shop", primary="sa")
        ddl.shard("shop.orders", {"_id": 1})
        ddl.split("shop.orders", {"_id": 100})
        ddl.move("shop.orders", {"_id": 100}, "sb")
        router.refresh()
        with closing(ShardedDdlWatch(clients, Position(reach_newest(clients).next()))) as watch:
            watch.poll()
            cluster.shards["sb"].hold_majority()
            router.insert("shop.orders", {"_id": 100}, writeConcern={"w": 1})

            def named() -> bool:
                trouble = watch.poll().trouble
                return isinstance(trouble, SourceMajorityStalled) and "shard sb" in str(trouble)

            until(named)
            cluster.shards["sb"].release_majority()
            newest_ts = reach_newest(clients)
            until(lambda: (step := watch.poll()).resolved.ts > newest_ts and not step.trouble)
