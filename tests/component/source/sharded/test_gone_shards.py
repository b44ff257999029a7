"""A shard that was removed from a real cluster, and one that is only away."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from changefeed.errors import HistoryLost, SourceUnavailable
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position, Window
from changefeed.sharded_history import ShardedHistory, opened
from changefeed.table import TableId, TableName
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.router import ClusterRouter
from devstack.sharded.wire import MAJORITY
from source.ddl_watch import DdlWatch
from source.oplog.row_entry import ROWS
from source.sharded.cluster_clients import ClusterClients, reach_newest
from source.sharded.owned.cluster_catalog import read_cluster_catalog
from source.sharded.rows.sharded_rows import sharded_rows
from source.sharded.source import ShardedSource
from source.stream.change_event import table_name
from source.stream.window_reader import ReadOptions
from tests.until import until

pytestmark = pytest.mark.since("6.0")

ORDERS, NOTES = "shop.orders", "shop.notes"
_TABLES = {TableName.parse(name) for name in (ORDERS, NOTES)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardedCluster]:
    directory: Path = tmp_path_factory.mktemp("gone")
    with ShardedCluster(directory / "data", directory / "log") as cluster:
        with cluster.router() as router:
            ddl = ClusterDdl(router)
            ddl.create_database("shop", primary="sa")
            for name in (ORDERS, NOTES):
                ddl.shard(name, {"_id": 1})
                ddl.split(name, {"_id": 100})
                ddl.move(name, {"_id": 100}, "sb")
        yield cluster


def moved_away(cluster: ShardedCluster, router: ClusterRouter, shard: str) -> Position:
    """Orders were there for a while, notes never. Returns a time before that."""
    cluster.add_shard(shard)
    ddl = ClusterDdl(router)
    ddl.move(ORDERS, {"_id": 0}, shard)
    router.refresh()
    with closing(ClusterClients(cluster.config.uri)) as clients:
        start = Position(reach_newest(clients).next())
    for name in (ORDERS, NOTES):
        router.update(name, {"_id": 1}, {"$set": {"of": shard}}, upsert=True, writeConcern=MAJORITY)
        router.update(name, {"_id": 100}, {"$set": {"of": shard}}, upsert=True, writeConcern=MAJORITY)
    ddl.move(ORDERS, {"_id": 0}, "sa", wait_for_delete=True)
    router.refresh()
    return start


def followed(watch: DdlWatch, clients: ClusterClients) -> tuple[list[DdlEvent], ShardedHistory]:
    """Up to now."""
    end_ts, events, histories = reach_newest(clients), list[DdlEvent](), list[ShardedHistory]()

    def arrived() -> bool:
        try:
            batch = watch.poll()
        except SourceUnavailable:
            return False
        events.extend(batch.events)
        history = opened(batch.history)
        assert history is not None
        histories.append(history)
        return batch.resolved.ts > end_ts

    until(arrived)
    return events, histories[-1]


def updated(clients: ClusterClients, history: ShardedHistory, window: Window) -> int:
    """Rows of users."""
    capture = sharded_rows(clients, {}, ReadOptions(patience=timedelta(seconds=5)))
    batches = capture.reader(history).read(window)
    headers = [header for batch in batches for _, header in batch.scanned(capture.scan)]
    return sum(header.type in ROWS and table_name(header.ns) in _TABLES for header in headers)


def table(clients: ClusterClients, name: str) -> tuple[TableName, list[TableId]]:
    [found] = read_cluster_catalog(clients, lambda each: str(each) == name).tables
    return found.name, [found.id]


@pytest.mark.parametrize("begun", [pytest.param("before", marks=pytest.mark.soak), "afterwards"])
def test_what_only_a_shard_had_that_is_gone_for_good_is_left_out_after_a_while(
    cluster: ShardedCluster, begun: str
) -> None:
    """A watch that had begun before the shard was removed, and one that begins with what it needs of it."""
    shard = f"s_{begun}"
    with (
        cluster.router() as router,
        closing(ClusterClients(cluster.config.uri, gone_after=timedelta(seconds=4))) as clients,
    ):
        start = moved_away(cluster, router, shard)
        watch = ShardedSource(clients).open_watch(start)
        if begun == "before":
            watch.poll()
        cluster.drain_shard(shard)
        cluster.shards.pop(shard).stop()
        ClusterDdl(router).create_index(ORDERS, {begun: 1})

        events: list[DdlEvent] = []

        def told() -> str:
            """Whether it is said before."""
            try:
                batch = watch.poll()
            except SourceUnavailable as error:
                return str(error)
            history = opened(batch.history)
            assert history is not None
            assert all(not each.gone for each in history.shards.values())
            events.extend(batch.events)
            return str(batch.trouble)

        until(lambda: "counts as gone for good" in told())
        later, history = followed(watch, clients)
        watch.close()
        events += later
        assert [(event.type, str(event.table)) for event in events] == [(DdlType.CREATE_INDEXES, ORDERS)]
        former = history.shards[shard]
        assert former.gone
        assert former.until_ts is not None
        # its own rows are lost: one of four
        assert updated(clients, history, Window(start, Position(history.resolved_ts))) == 3
        left = ShardedSource(clients).left_tables(shard, start.ts)
        assert left.may_have(*table(clients, ORDERS))
        assert not left.may_have(*table(clients, NOTES))
        assert not ShardedSource(clients).left_tables(shard, former.until_ts).may_have(*table(clients, ORDERS))


def test_a_shard_that_is_added_again_under_its_name_is_read_where_it_is_now(cluster: ShardedCluster) -> None:
    """On other hosts. What its first life had is not read any more: whoever begins before its end is told."""
    with cluster.router() as router, closing(ClusterClients(cluster.config.uri)) as clients:
        cluster.add_shard("again")
        start = Position(reach_newest(clients).next())
        watch = ShardedSource(clients).open_watch(start)
        assert followed(watch, clients)[1].shards["again"].host == where(cluster, "again")
        cluster.drain_shard("again")
        assert followed(watch, clients)[1].shards["again"].until_ts is not None

        first = cluster.shards.pop("again")
        first.stop()
        for member in first.members:
            shutil.rmtree(member.directory)
        cluster.add_shard("again")
        ddl = ClusterDdl(router)
        router.forget("again")
        ddl.move(ORDERS, {"_id": 0}, "again")
        router.refresh()
        router.update(ORDERS, {"_id": 1}, {"$set": {"again": 1}}, upsert=True, writeConcern=MAJORITY)
        ddl.create_index(ORDERS, {"again": 1})
        events, history = followed(watch, clients)
        assert [(event.type, str(event.table)) for event in events] == [(DdlType.CREATE_INDEXES, ORDERS)]
        second = history.shards["again"]
        assert (second.host, second.until_ts) == (where(cluster, "again"), None)
        assert second.since_ts is not None
        assert updated(clients, history, Window(Position(second.since_ts), Position(history.resolved_ts))) == 1
        watch.close()

        too_old = ShardedSource(clients).open_watch(start)
        with pytest.raises(HistoryLost, match=r"shard again was removed at .* another one was added under its name"):
            too_old.poll()
        too_old.close()
        ddl.move(ORDERS, {"_id": 0}, "sa", wait_for_delete=True)
        cluster.remove_shard("again")


def where(cluster: ShardedCluster, shard: str) -> str:
    """As config.shards has it."""
    return f"{shard}/{','.join(cluster.shards[shard].addresses)}"


@pytest.mark.soak
def test_the_history_of_a_shard_that_is_gone_fails_if_it_was_the_primary_shard_of_a_database(
    cluster: ShardedCluster,
) -> None:
    with cluster.router() as router, closing(ClusterClients(cluster.config.uri, gone_after=timedelta())) as clients:
        cluster.add_shard("s_primary")
        ddl = ClusterDdl(router)
        ddl.create_database("brought", primary="s_primary")
        start = Position(reach_newest(clients).next())
        router.insert("brought.gifts", {"_id": 1})
        ddl.move_primary("brought", "sa")
        cluster.drain_shard("s_primary")
        cluster.shards.pop("s_primary").stop()
        watch = ShardedSource(clients).open_watch(start)
        with pytest.raises(Exception, match="primary shard of brought") as failed:
            watch.poll()
        watch.close()
        assert getattr(failed.value, "code", "") == "history_lost"
        ddl.drop_database("brought")


@pytest.mark.soak
def test_a_shard_that_is_only_away_is_never_gone(cluster: ShardedCluster) -> None:
    with cluster.router() as router, closing(ClusterClients(cluster.config.uri, gone_after=timedelta())) as clients:
        watch = ShardedSource(clients).open_watch(Position(reach_newest(clients).next()))
        watch.poll()
        [member] = cluster.shards["sb"].members
        member.kill()
        router.update(NOTES, {"_id": 1}, {"$set": {"x": 1}}, upsert=True)
        for _ in range(3):
            batch = watch.poll()
            assert batch.trouble is not None
            assert "sb: " in str(batch.trouble)
            history = opened(batch.history)
            assert history is not None
            assert not history.shards["sb"].gone
        assert clients.silence("sb", clients.host("sb")) is None
        member.start()
        router.forget("sb")
        followed(watch, clients)
        watch.close()
