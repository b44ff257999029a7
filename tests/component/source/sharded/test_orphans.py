"""Below featureCompatibilityVersion 6.0 a shard logs writes to documents that it does not own: such a cluster is read only while no chunk moves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from admin.preflight.source_probe import probe_source
from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.errors import SourceUnsupported
from changefeed.event import DdlEvent, DdlType
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.router import ClusterRouter
from source.sharded.cluster_clients import ClusterClients, reach_newest
from source.sharded.watch import ClusterStep, ClusterWatch
from tests.component.source.sharded.follower import FollowedRow, rows_of
from tests.until import until

pytestmark = pytest.mark.since("5.0")

ITEMS = "shop.items"
_ORPHANS_STAY_SECONDS = 3600


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ShardedCluster]:
    with ShardedCluster(tmp_path / "data", tmp_path / "log") as cluster, cluster.router() as router:
        ddl = ClusterDdl(router)
        lower_features(cluster, router)
        ddl.create_database("shop", primary="sa")
        ddl.shard_in_zones(ITEMS, "k", [100], ["sa", "sb"])
        for key in (1, 50, 101):
            router.insert(ITEMS, {"_id": key, "k": key})
        yield cluster


def lower_features(cluster: ShardedCluster, router: ClusterRouter) -> None:
    if cluster.version >= (6, 0):
        router.config({"setFeatureCompatibilityVersion": "5.0", "writeConcern": {"w": "majority"}})


@pytest.fixture
def router(cluster: ShardedCluster) -> Iterator[ClusterRouter]:
    with cluster.router() as router:
        yield router


@pytest.fixture
def clients(cluster: ShardedCluster) -> Iterator[ClusterClients]:
    with closing(ClusterClients(cluster.config.uri)) as clients:
        yield clients


def keep_orphans(cluster: ShardedCluster, seconds: int) -> None:
    for shard in cluster.shards.values():
        with shard.client() as client:
            client.admin.command({"setParameter": 1, "orphanCleanupDelaySecs": seconds})


def update_all(router: ClusterRouter) -> None:
    many = {"update": "items", "updates": [{"q": {}, "u": {"$inc": {"n": 1}}, "multi": True}]}
    router.to_owners(ITEMS, lambda shard, versions: router.wire(shard).command("shop", {**many, **versions}))


def updates(clients: ClusterClients, shard: str) -> list[dict[str, Any]]:
    return list(clients.of(shard)["local"]["oplog.rs"].find({"ns": ITEMS, "op": "u"}).sort("$natural", 1))


def until_refused(watch: ClusterWatch, says: str) -> list[ClusterStep]:
    steps: list[ClusterStep] = []

    def follow() -> None:
        while True:
            steps.append(watch.poll())

    with pytest.raises(SourceUnsupported, match=says):
        follow()
    return steps


def test_a_watch_ends_before_a_moved_chunk_and_so_does_each_that_begins_before_it(
    cluster: ShardedCluster, router: ClusterRouter, clients: ClusterClients
) -> None:
    """The orphans are on the recipient from the copy on, and on the donor afterwards."""
    keep_orphans(cluster, _ORPHANS_STAY_SECONDS)
    start_ts = reach_newest(clients).next()
    seen: list[FollowedRow] = []

    def take(step: ClusterStep) -> None:
        seen[:] = rows_of(clients, start_ts, step)

    with closing(ClusterWatch(clients, start_ts)) as watch:
        update_all(router)
        while len(seen) < 3:
            take(watch.poll())
        ClusterDdl(router).move(ITEMS, {"k": 1}, "sb")
        router.refresh()
        update_all(router)
        assert not any(each.get("fromMigrate") for each in updates(clients, "sa") + updates(clients, "sb"))
        for step in until_refused(watch, r"shard sa moved or cleaned up a chunk of shop\.items at"):
            take(step)
    assert len(seen) == 3
    for from_ts in (start_ts, reach_newest(clients).next()):
        with pytest.raises(SourceUnsupported, match=r"shard sa has orphaned documents of shop\.items"):
            ClusterWatch(clients, from_ts)
    keep_orphans(cluster, 0)


def test_orphans_that_were_there_at_the_start_are_found_though_they_are_deleted_since(
    cluster: ShardedCluster, router: ClusterRouter, clients: ClusterClients
) -> None:
    ClusterDdl(router).split(ITEMS, {"k": 40})
    before_ts = reach_newest(clients).next()
    ClusterDdl(router).move(ITEMS, {"k": 1}, "sb")
    ranges = clients.of("sa", clients.read_shards()["sa"])["config"]["rangeDeletions"]
    until(lambda: ranges.find_one() is None)
    router.insert(ITEMS, {"_id": 2, "k": 2})
    [created] = clients.of("sa")["local"]["oplog.rs"].find({"ns": "config.rangeDeletions", "op": "i"})
    for start_ts in (before_ts, ClusterTime.from_bson(created["ts"]).next()):
        with closing(ClusterWatch(clients, start_ts)) as watch:
            until_refused(watch, r"shard s[ab] moved")
    with closing(ClusterWatch(clients, reach_newest(clients).next())) as watch:
        update_all(router)
        newest = ClusterTime.from_bson(updates(clients, "sb")[-1]["ts"])
        while watch.poll().resolved <= newest:
            pass


def test_create_refuses_a_running_balancer_and_orphans(
    cluster: ShardedCluster, router: ClusterRouter, target_uri: str
) -> None:
    configuration = Configuration.parse({"id": "f", "source": cluster.config.uri, "sink": target_uri})

    def problems() -> tuple[str, ...]:
        return probe_source(configuration, Capture.OPLOG).problems

    assert problems() == ()
    cluster.balanced(True)
    [problem] = problems()
    assert problem.startswith("source: the balancer of the cluster is on: below featureCompatibilityVersion 6.0 ")
    assert "sh.stopBalancer()" in problem
    cluster.balanced(False)
    keep_orphans(cluster, _ORPHANS_STAY_SECONDS)
    ClusterDdl(router).move(ITEMS, {"k": 101}, "sa")
    [problem] = problems()
    assert problem.startswith("source: shard sb has orphaned documents of shop.items, by config.rangeDeletions: below")
    keep_orphans(cluster, 0)


@pytest.mark.since("6.0")
def test_chunks_may_move_once_the_version_is_raised(
    cluster: ShardedCluster, router: ClusterRouter, clients: ClusterClients
) -> None:
    start_ts = reach_newest(clients).next()
    with closing(ClusterWatch(clients, start_ts)) as watch:
        router.config({"setFeatureCompatibilityVersion": "6.0", "writeConcern": {"w": "majority"}})
        ClusterDdl(router).move(ITEMS, {"k": 1}, "sb", wait_for_delete=True)
        router.refresh()
        update_all(router)
        newest = ClusterTime.from_bson(updates(clients, "sb")[-1]["ts"])
        while watch.poll().resolved <= newest:
            pass
        lower_features(cluster, router)
        until_refused(watch, r"featureCompatibilityVersion was lowered to 5\.0 at")


def test_options_are_shown_though_no_coordinator_tells_of_their_end(
    router: ClusterRouter, clients: ClusterClients
) -> None:
    """And by a watch that begins between the entries of two shards."""
    start_ts = reach_newest(clients).next()
    ddl = ClusterDdl(router)
    for level in ("off", "strict", "off"):
        ddl.modify(ITEMS, validationLevel=level)
    ddl.drop(ITEMS)
    logged = {"o.collMod": "items"}
    entries = [
        each
        for shard in ("sa", "sb")
        for each in clients.of(shard, clients.read_shards()[shard])["local"]["oplog.rs"].find(logged)
    ]
    first = min(ClusterTime.from_bson(each["ts"]) for each in entries)
    # the test's router tells no shard the time of another one's entry, as a mongos would: they stand in any order
    for levels in (shown(clients, start_ts), shown(clients, first.next())):
        assert set(levels) == {"off", "strict"}
        assert levels[-1] == "off"


def shown(clients: ClusterClients, start_ts: ClusterTime) -> list[str]:
    levels: list[str] = []
    with closing(ClusterWatch(clients, start_ts)) as watch:
        while True:
            for change in watch.poll().changes:
                assert isinstance(change, DdlEvent)
                if change.type is DdlType.DROP:
                    return levels
                levels.append(change.description.decode()["validationLevel"])
