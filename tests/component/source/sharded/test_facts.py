"""What the readers of a sharded cluster rely on, as the servers do it. A server version that differs is found by these tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import bson
import pytest
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SourceUnavailable
from changefeed.event import SHARDING, DdlEvent, DdlType
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.hashed_key import hashed
from devstack.sharded.router import ClusterRouter
from devstack.sharded.wire import CommandFailed
from source.oplog.window import majority_time
from source.sharded.cluster_clients import ClusterClients, reach_newest
from source.sharded.tables.cluster_state import ClusterChange, NewUuid
from source.sharded.watch import ClusterStep, ClusterWatch
from tests.component.source.sharded.follower import Follower, rows_of
from tests.until import until

pytestmark = pytest.mark.since("5.0")

Entry = dict[str, Any]
ITEMS, OTHERS, PLAIN = "shop.items", "shop.others", "shop.plain"
_SNAPSHOT_TOO_OLD = 239
_MOVES = pytest.mark.since("6.0")
"""Before, a source may not move chunks, and a movePrimary ends a server of 5.0.4."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardedCluster]:
    directory: Path = tmp_path_factory.mktemp("sharded")
    with ShardedCluster(directory / "data", directory / "log", shards=("sa", "sb", "sc")) as cluster:
        yield cluster


@pytest.fixture
def router(cluster: ShardedCluster) -> Iterator[ClusterRouter]:
    """With a database on sa, and `items` on sa (below 100) and sb."""
    with cluster.router() as router:
        ddl = ClusterDdl(router)
        ddl.create_database("shop", primary="sa")
        ddl.shard_in_zones(ITEMS, "k", [100], ["sa", "sb"])
        router.insert(ITEMS, {"_id": 1, "k": 1})
        router.insert(ITEMS, {"_id": 101, "k": 101})
        yield router
        ddl.drop_database("shop")


@pytest.fixture
def ddl(router: ClusterRouter) -> ClusterDdl:
    return ClusterDdl(router)


@pytest.fixture
def clients(cluster: ShardedCluster) -> Iterator[ClusterClients]:
    with closing(ClusterClients(cluster.config.uri)) as clients:
        yield clients


class OplogsSince:
    """All oplogs from now on."""

    def __init__(self, cluster: ShardedCluster) -> None:
        self._sets = {"config": cluster.config, **cluster.shards}
        self._start = {name: self.newest(name) for name in self._sets}

    def of(self, name: str, **wanted: Any) -> list[Entry]:
        with self._sets[name].client() as client:
            query = {"ts": {"$gt": self._start[name]}, **wanted}
            return list(client["local"]["oplog.rs"].find(query).sort("$natural", 1))

    def commands(self, command: str) -> dict[str, list[Entry]]:
        """Of each shard that has any, those on `shop`."""
        found = {name: self.of(name, ns="shop.$cmd", **{f"o.{command}": {"$exists": True}}) for name in self._sets}
        return {name: entries for name, entries in found.items() if entries}

    def config(self, coll: str, id: str) -> list[Entry]:
        """The operations on a document of the config servers, each with the time of its entry."""
        return [
            {**operation, "ts": entry["ts"]}
            for entry in self.of("config")
            for operation in entry["o"].get("applyOps", [entry])
            if operation["ns"] == f"config.{coll}" and (operation.get("o2") or operation["o"])["_id"] == id
        ]

    def newest(self, name: str) -> Timestamp:
        with self._sets[name].client() as client:
            [entry] = client["local"]["oplog.rs"].find().sort("$natural", -1).limit(1)
            newest: Timestamp = entry["ts"]
            return newest


def test_a_migration_and_its_clean_up_are_flagged(
    cluster: ShardedCluster, router: ClusterRouter, ddl: ClusterDdl
) -> None:
    oplogs = OplogsSince(cluster)
    ddl.move(ITEMS, {"k": 1}, "sc", wait_for_delete=True)
    for shard, op in (("sc", "i"), ("sa", "d")):
        [row] = oplogs.of(shard, ns=ITEMS, op=op)
        assert row["fromMigrate"]
        assert row["o"]["_id"] == 1
    [create] = oplogs.commands("create")["sc"]
    assert bool(create.get("fromMigrate")) == (cluster.version >= (6, 0))
    [before] = oplogs.of("sc", op="c", **{"o.createIndexes": "items"})
    assert before["ts"] < oplogs.of("sc", ns=ITEMS, op="i")[0]["ts"]


def test_a_transaction_across_shards_has_one_commit_timestamp_the_greatest_of_its_prepares(
    cluster: ShardedCluster, router: ClusterRouter
) -> None:
    oplogs = OplogsSince(cluster)
    transaction = router.transaction()
    transaction.update(ITEMS, {"_id": 1, "k": 1}, {"$set": {"v": 1}})
    transaction.update(ITEMS, {"_id": 101, "k": 101}, {"$set": {"v": 1}})
    transaction.commit()
    prepares = [oplogs.of(shard, **{"o.prepare": True})[0] for shard in ("sa", "sb")]
    commits = [oplogs.of(shard, **{"o.commitTransaction": 1})[0] for shard in ("sa", "sb")]
    assert {each["o"]["commitTimestamp"] for each in commits} == {max(each["ts"] for each in prepares)}
    assert [each["prevOpTime"]["ts"] for each in commits] == [each["ts"] for each in prepares]
    assert all(each["o"]["commitTimestamp"] <= each["ts"] for each in commits)
    assert len({(bytes(each["lsid"]["id"]), each["txnNumber"]) for each in prepares + commits}) == 1


def test_a_sharded_collection_has_one_uuid_and_the_primary_shard_creates_it_before_config_knows_it(
    cluster: ShardedCluster, router: ClusterRouter, ddl: ClusterDdl
) -> None:
    oplogs = OplogsSince(cluster)
    ddl.shard(OTHERS, {"k": 1})
    ddl.move(OTHERS, {"k": 1}, "sc")
    creates = oplogs.commands("create")
    assert creates.keys() == {"sa", "sc"}
    [known] = oplogs.config("collections", OTHERS)
    assert {entries[0]["ui"] for entries in creates.values()} == {known["o"]["uuid"]}
    assert creates["sa"][0]["ts"] < known["ts"]


def test_a_drop_is_logged_by_holders_the_primary_shard_last_and_by_config_first(
    cluster: ShardedCluster, router: ClusterRouter, ddl: ClusterDdl
) -> None:
    oplogs = OplogsSince(cluster)
    ddl.drop(ITEMS)
    drops = oplogs.commands("drop")
    assert drops.keys() == {"sa", "sb"}, "sc does not hold it"
    [known] = [each for each in oplogs.config("collections", ITEMS) if each["op"] == "d"]
    assert known["ts"] < drops["sb"][0]["ts"] < drops["sa"][0]["ts"]


def test_a_rename_over_a_target_is_logged_by_holders_before_config(
    cluster: ShardedCluster, router: ClusterRouter, ddl: ClusterDdl
) -> None:
    ddl.shard(OTHERS, {"k": 1})
    ddl.split(OTHERS, {"k": 100})
    ddl.move(OTHERS, {"k": 100}, "sc")
    oplogs = OplogsSince(cluster)
    ddl.rename(ITEMS, OTHERS, drop_target=True)
    renames, drops = oplogs.commands("renameCollection"), oplogs.commands("drop")
    assert renames.keys() == {"sa", "sb"}
    assert drops.keys() == {"sc"}, "it holds the target alone"
    assert "dropTarget" in renames["sa"][0]["o"]
    assert "dropTarget" not in renames["sb"][0]["o"]
    last = max(each["ts"] for entries in (*renames.values(), *drops.values()) for each in entries)
    assert last < min(each["ts"] for each in oplogs.config("collections", OTHERS) if each["op"] in "id")
    documents = oplogs.of("sa", ns="config.system.sharding_ddl_coordinators", op={"$in": ["i", "d"]})
    assert [each["op"] for each in documents] == ["i", "d"]
    assert documents[0]["ts"] < last < documents[1]["ts"]


@_MOVES
def test_a_move_of_the_primary_shard_creates_before_config_changes_and_drops_after_it(
    cluster: ShardedCluster, router: ClusterRouter, ddl: ClusterDdl
) -> None:
    router.insert(PLAIN, {"_id": 1})
    oplogs = OplogsSince(cluster)
    ddl.move_primary("shop", "sc")
    [moved] = [each for each in oplogs.config("databases", "shop") if "primary" in each["o"]["diff"]["u"]]
    copies = {each["o"]["create"]: each for each in oplogs.commands("create")["sc"]}
    assert copies.keys() == {"items", "plain"}, "an empty copy of the sharded one too"
    [drop] = oplogs.commands("drop")["sa"]
    assert copies["plain"]["ui"] != drop["ui"]
    assert copies["plain"]["ts"] < moved["ts"] < drop["ts"]
    assert all(each.get("fromMigrate") for each in oplogs.of("sc", ns=PLAIN, op="i"))


def test_resharding_fills_a_system_collection_and_config_changes_the_uuid_before_it_is_renamed(
    cluster: ShardedCluster, router: ClusterRouter, ddl: ClusterDdl
) -> None:
    oplogs = OplogsSince(cluster)
    ddl.reshard(ITEMS, {"_id": 1}, numInitialChunks=1)
    rows = [row for shard in ("sa", "sb", "sc") for row in oplogs.of(shard, op="i", ns={"$regex": r"^shop\."})]
    assert {row["ns"].startswith("shop.system.resharding.") for row in rows} == {True}
    assert not any("fromMigrate" in row for row in rows), "only the name tells"
    [changed] = [
        each for each in oplogs.config("collections", ITEMS) if "uuid" in each["o"].get("diff", {}).get("u", {})
    ]
    renames = oplogs.commands("renameCollection")
    assert "sa" in renames, "the primary shard always gets the collection"
    for entries in renames.values():
        assert entries[0]["ui"] == changed["o"]["diff"]["u"]["uuid"]
        assert entries[0]["ts"] > changed["ts"]


def test_resharding_logs_a_copied_index_as_a_migration_does_but_not_that_of_the_new_key(
    cluster: ShardedCluster, router: ClusterRouter, ddl: ClusterDdl
) -> None:
    """By this a watch that begins in the past knows the indexes which the table had before."""
    oplogs = OplogsSince(cluster)
    ddl.reshard(ITEMS, {"b": 1}, numInitialChunks=1)
    built = [each for entries in oplogs.commands("createIndexes").values() for each in entries]
    assert {(each["o"]["name"], each.get("fromMigrate", False)) for each in built} == {("k_1", True), ("b_1", False)}


def test_a_holder_without_chunks_logs_neither_indexes_nor_options(
    cluster: ShardedCluster, router: ClusterRouter, ddl: ClusterDdl
) -> None:
    ddl.move(ITEMS, {"k": 1}, "sb", wait_for_delete=True)
    router.refresh()
    oplogs = OplogsSince(cluster)
    ddl.create_index(ITEMS, {"b": 1})
    ddl.modify(ITEMS, index={"name": "b_1", "hidden": True})
    ddl.drop_index(ITEMS, "b_1")
    for command in ("commitIndexBuild", "collMod", "dropIndexes"):
        assert oplogs.commands(command).keys() == {"sb"}, "sa is the primary shard, and holds it"


@contextmanager
def decision_withheld(cluster: ShardedCluster, shard: str) -> Iterator[None]:
    """The coordinator of a transaction on this shard waits between the prepares and the decision."""
    with cluster.shards[shard].client() as client:
        client.admin.command("configureFailPoint", "hangBeforeWritingDecision", mode="alwaysOn")
        try:
            yield
        finally:
            client.admin.command("configureFailPoint", "hangBeforeWritingDecision", mode="off")


def test_resolved_stands_below_an_undecided_transaction_also_for_a_reader_that_starts_then(
    cluster: ShardedCluster, router: ClusterRouter, clients: ClusterClients
) -> None:
    reader = RowsSeen(clients, majority_time(clients.config))
    try:
        with decision_withheld(cluster, "sa"):
            transaction = router.transaction()
            transaction.insert(ITEMS, {"_id": 2, "k": 2})
            transaction.insert(ITEMS, {"_id": 102, "k": 102})
            with pytest.raises(CommandFailed):
                transaction.commit(within_ms=500)
            router.insert(ITEMS, {"_id": 103, "k": 103})
            prepared_ts = _prepared(cluster, "sa")
            for _ in range(3):
                for _ in range(5):
                    reader.step()
                    assert reader.reached_ts <= prepared_ts
                reader.start_anew()
        until(lambda: len(router.rows(ITEMS)) == 5)
        router.insert(PLAIN, {"_id": "last"})
        while "last" not in reader.seen:
            reader.step()
    finally:
        reader.watch.close()
    assert reader.seen >= {2, 102, 103}


def _prepared(cluster: ShardedCluster, shard: str) -> ClusterTime:
    with cluster.shards[shard].client() as client:
        [document] = client["config"]["transactions"].find({"state": "prepared"})
        return ClusterTime.from_bson(document["startOpTime"]["ts"])


class RowsSeen(Follower):
    """Only which rows it is shown, of whichever table: it starts where there are tables already."""

    def __init__(self, clients: ClusterClients, start_ts: ClusterTime) -> None:
        super().__init__(clients, start_ts)
        self.seen: set[Any] = set()

    def step(self) -> ClusterStep:
        step = self.watch.poll()
        self.seen |= {self._document(row)[1] for rows in self._rows(step) for row in rows}
        self.reached_ts = step.resolved
        return step


def test_idle_shards_are_nudged_for_a_row_and_left_alone_otherwise(
    cluster: ShardedCluster, router: ClusterRouter, clients: ClusterClients
) -> None:
    nudges = {"o.noop write for afterClusterTime read concern": 1}
    watch = ClusterWatch(clients, majority_time(clients.config))
    sent = OplogsSince(cluster)
    keys = count(200)

    def is_newest() -> bool:
        """Shards count within a second on their own, so a row on sa may be older than what sb has."""
        router.update(ITEMS, {"_id": 1, "k": 1}, {"$set": {"v": next(keys)}})
        newest: Timestamp = sent.of("sa", ns=ITEMS)[-1]["ts"]
        return newest > max(sent.newest("sb"), sent.newest("sc"))

    def are_nudged() -> bool:
        """At times another entry lets a shard pass the row."""
        until(is_newest)
        row = sent.of("sa", ns=ITEMS)[-1]
        while watch.poll().resolved <= ClusterTime.from_bson(row["ts"]):
            pass
        return bool(sent.of("sb", **nudges)) and bool(sent.of("sc", **nudges))

    until(are_nudged)
    after = OplogsSince(cluster)
    for _ in range(20):
        watch.poll()
    watch.close()
    assert [after.of(shard, **nudges) for shard in ("sa", "sb", "sc")] == [[], [], []]


@_MOVES
def test_a_shard_is_followed_from_its_admission_to_its_removal(
    cluster: ShardedCluster, clients: ClusterClients
) -> None:
    follower = Follower(clients, majority_time(clients.config))
    with cluster.router() as router:
        ddl = ClusterDdl(router)
        ddl.create_database("later", primary="sa")
        ddl.shard("later.rows", {"_id": 1})
        oplogs = OplogsSince(cluster)
        cluster.add_shard("sd")
        ddl.move("later.rows", {"_id": 0}, "sd")
        router.refresh()
        router.insert("later.rows", {"_id": 5})
        [admitted] = oplogs.config("shards", "sd")
        with cluster.shards["sd"].client() as client:
            first = client["local"]["oplog.rs"].find_one({"ns": {"$regex": r"^later\."}}, sort=[("$natural", 1)])
        assert first is not None
        assert admitted["ts"] < first["ts"]
        _follow_to(follower, router, 6)
        assert follower.shards == {"sa", "sb", "sc", "sd"}
        follower.start_anew()
        ddl.move("later.rows", {"_id": 0}, "sa", wait_for_delete=True)
        router.refresh()
        cluster.drain_shard("sd")
        removed = cluster.shards.pop("sd")
        router.insert("later.rows", {"_id": 7})
        keys = count(8)
        begun = follower.reached_ts
        while "sd" in follower.shards:
            _follow_to(follower, router, next(keys))
        with closing(ClusterWatch(clients, begun)) as from_before:
            while from_before.poll().history.shards["sd"].until_ts is None:
                pass
        removed.stop()
        with closing(ClusterClients(cluster.config.uri)) as others:
            others.of("sd", f"sd/{removed.addresses[0]}")
            with pytest.raises(SourceUnavailable, match=r"shard sd was removed .* it does not answer"):
                ClusterWatch(others, begun)
        follower.start_anew()
        assert set(follower.named("later.rows")) == set(range(5, next(keys)))
        ddl.drop_database("later")
    follower.watch.close()


def _follow_to(follower: Follower, router: ClusterRouter, key: int) -> None:
    router.insert("later.rows", {"_id": key})
    while key not in (follower.named("later.rows") if follower.tables else {}):
        follower.step()


@pytest.mark.soak
def test_a_shard_that_is_away_holds_resolved_is_named_and_loses_nothing(
    cluster: ShardedCluster, router: ClusterRouter, clients: ClusterClients
) -> None:
    start_ts = majority_time(clients.config)
    watch = ClusterWatch(clients, start_ts)
    steps: list[ClusterStep] = []
    [away] = cluster.shards["sb"].members
    away.kill()
    try:
        router.forget("sb")
        keys = count(1_000)
        while not steps or "sb" not in steps[-1].held_by:
            router.insert(ITEMS, {"_id": next(keys), "k": 5})
            steps.append(watch.poll())
        router.insert(ITEMS, {"_id": next(keys), "k": 5})
        steps.append(watch.poll())
    finally:
        away.start()
    assert set(steps[-1].trouble) == {"sb"}
    assert steps[-1].resolved == steps[-2].resolved
    until(lambda: _takes(router, {"_id": 105, "k": 105}))
    seen: set[int] = set()
    while not seen >= {1_000, 105}:
        router.insert(ITEMS, {"_id": next(keys), "k": 5})
        steps.append(watch.poll())
        seen = {bson.decode(row.header.key)["_id"] for row in rows_of(clients, start_ts, steps[-1])}
    watch.close()


def _takes(router: ClusterRouter, row: Entry) -> bool:
    try:
        router.insert(ITEMS, row)
    except (CommandFailed, OSError):
        router.forget("sb")
        return False
    return True


def _but_keys(changes: Iterable[ClusterChange]) -> Iterator[ClusterChange]:
    """What is told besides the table's new shard key."""
    return (change for change in changes if isinstance(change, NewUuid) or change.type not in SHARDING)


@_MOVES
def test_uuids_change_where_the_table_stays(router: ClusterRouter, ddl: ClusterDdl, clients: ClusterClients) -> None:
    router.insert(PLAIN, {"_id": 1})
    start_ts = max(majority_time(clients.of(shard, host)) for shard, host in clients.read_shards().items())
    with closing(ClusterWatch(clients, start_ts.next())) as watch:
        ddl.move_primary("shop", "sc")
        ddl.reshard(ITEMS, {"_id": 1}, numInitialChunks=2)
        ddl.drop(PLAIN)
        router.insert(ITEMS, {"_id": 9, "k": 9})
        changes: list[ClusterChange] = []
        while not any(isinstance(change, DdlEvent) and change.type is DdlType.DROP for change in changes):
            changes += _but_keys(watch.poll().changes)
    shown = [change for change in changes if isinstance(change, NewUuid) or change.type is not DdlType.CREATE]
    plain, items, *others = shown
    assert isinstance(plain, NewUuid)
    assert isinstance(items, NewUuid)
    assert plain.table == plain.before != plain.uuid
    assert items.table == items.before != items.uuid
    assert [(each.type, each.id) for each in others if isinstance(each, DdlEvent)] == [(DdlType.DROP, plain.table)]


def test_options_that_changed_before_a_resharding_are_shown_by_a_watch_that_begins_after_it(
    router: ClusterRouter, ddl: ClusterDdl, clients: ClusterClients
) -> None:
    """Resharding removes the chunks, which say whose collMod counts. The config servers still know them at the start."""
    start_ts = max(majority_time(clients.of(shard, host)) for shard, host in clients.read_shards().items())
    ddl.modify(ITEMS, validationLevel="off")
    ddl.reshard(ITEMS, {"_id": 1}, numInitialChunks=2)
    with closing(ClusterWatch(clients, start_ts.next())) as watch:
        changes: list[ClusterChange] = []
        while not any(isinstance(change, NewUuid) for change in changes):
            changes += _but_keys(watch.poll().changes)
    [modified] = [change for change in changes if isinstance(change, DdlEvent) and change.type is DdlType.MODIFY]
    [superseded] = [change for change in changes if isinstance(change, NewUuid)]
    assert modified.id == superseded.table
    assert modified.position < superseded.position


def test_resharding_gives_an_index_of_one_owner_to_all_and_it_is_shown(
    cluster: ShardedCluster, router: ClusterRouter, ddl: ClusterDdl, clients: ClusterClients
) -> None:
    """As where a shard was away when the index was built, and nobody has built it there since."""
    start_ts = max(majority_time(clients.of(shard, host)) for shard, host in clients.read_shards().items())
    with cluster.shards["sa"].client() as one_owner:
        one_owner["shop"]["items"].create_index("b")
    changes: list[ClusterChange] = []
    with closing(ClusterWatch(clients, start_ts.next())) as watch:
        ddl.reshard(ITEMS, {"_id": 1}, numInitialChunks=2)
        ddl.drop(ITEMS)
        while not any(isinstance(change, DdlEvent) and change.type is DdlType.DROP for change in changes):
            changes += _but_keys(watch.poll().changes)
    superseded, built, _ = changes
    assert isinstance(superseded, NewUuid)
    assert isinstance(built, DdlEvent)
    assert [spec["name"] for spec in built.description.decode()["indexes"]] == ["b_1"]


def test_an_index_that_resharding_copied_may_be_new_to_a_watch_that_never_saw_the_old_collection(
    cluster: ShardedCluster, ddl: ClusterDdl, clients: ClusterClients
) -> None:
    with cluster.shards["sa"].client() as one_owner:
        one_owner["shop"]["items"].create_index("b")
    start_ts = reach_newest(clients)
    ddl.reshard(ITEMS, {"_id": 1}, numInitialChunks=2)
    with closing(ClusterWatch(clients, start_ts.next())) as watch:
        changes: list[ClusterChange] = []
        while not any(isinstance(change, DdlEvent) for change in changes):
            changes += _but_keys(watch.poll().changes)
    superseded, built = changes
    assert isinstance(superseded, NewUuid)
    assert isinstance(built, DdlEvent)
    description = built.description.decode()
    assert description["presumed"] == [spec["name"] for spec in description["indexes"]] == ["k_1", "b_1"]


def test_an_index_that_a_resharding_built_before_the_start_may_be_new_to_a_watch_that_begins_after_the_next_one(
    cluster: ShardedCluster, router: ClusterRouter, ddl: ClusterDdl, clients: ClusterClients
) -> None:
    """What it built is no more, and was not the table yet at the start."""
    oplogs = OplogsSince(cluster)
    ddl.reshard(ITEMS, {"b": 1}, numInitialChunks=2)
    router.refresh()
    built = [entries[-1]["ts"] for entries in oplogs.commands("createIndexes").values()]
    ddl.reshard(ITEMS, {"_id": 1}, numInitialChunks=2)
    with closing(ClusterWatch(clients, ClusterTime.from_bson(max(built)).next())) as watch:
        changes: list[ClusterChange] = []
        while len([change for change in changes if isinstance(change, NewUuid)]) < 2:
            changes += _but_keys(watch.poll().changes)
    shown = [change.description.decode() for change in changes if isinstance(change, DdlEvent)]
    assert "b_1" in [spec["name"] for each in shown for spec in each["indexes"]], shown


def test_what_two_reshardings_have_built_is_shown_though_the_config_servers_no_longer_know_the_owners_in_between(
    cluster: ShardedCluster, router: ClusterRouter, ddl: ClusterDdl, clients: ClusterClients
) -> None:
    """The start is where the first one creates what it fills: its chunks were written before."""
    oplogs = OplogsSince(cluster)
    ddl.reshard(ITEMS, {"b": 1}, numInitialChunks=1)
    router.refresh()
    ddl.create_index(ITEMS, {"c": 1})
    ddl.reshard(ITEMS, {"_id": 1}, numInitialChunks=1)
    start_ts = min(ClusterTime.from_bson(entries[0]["ts"]) for entries in oplogs.commands("create").values())
    changes: list[ClusterChange] = []
    with forgetful(cluster, start_ts), closing(ClusterWatch(clients, start_ts)) as watch:
        while len([change for change in changes if isinstance(change, NewUuid)]) < 2:
            changes += _but_keys(watch.poll().changes)
    built = [change.description.decode() for change in changes if isinstance(change, DdlEvent)]
    assert [[spec["name"] for spec in each["indexes"]] for each in built] == [["k_1", "b_1"], ["c_1"]]
    assert [each.get("presumed") for each in built] == [["k_1"], None]


@contextmanager
def forgetful(cluster: ShardedCluster, start_ts: ClusterTime) -> Iterator[None]:
    """The config servers do not know any more how `config.chunks` was at that time."""
    parameter = "minSnapshotHistoryWindowInSeconds"
    with cluster.config.client() as client:
        before = client.admin.command({"setParameter": 1, parameter: 0})["was"]
        at_start = {"level": "snapshot", "atClusterTime": start_ts.previous().to_bson()}

        def forgotten() -> bool:
            try:
                client.config.command("find", "chunks", readConcern=at_start)
            except OperationFailure as error:
                return error.code == _SNAPSHOT_TOO_OLD
            return False

        until(forgotten)
        try:
            yield
        finally:
            client.admin.command({"setParameter": 1, parameter: before})


def test_a_hashed_key_is_computed_as_the_servers_do(cluster: ShardedCluster) -> None:
    with cluster.shards["sa"].client() as client:
        for value in (0, 1, -5, 199, 1 << 40):
            assert client.admin.command("_hashBSONElement", value, seed=0)["out"] == hashed(value)
