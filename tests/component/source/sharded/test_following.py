"""A cluster that is followed live, from a bare time and started anew in between, gives its tables as its shards own them."""

from __future__ import annotations

import logging
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from source.oplog.window import majority_time
from source.sharded.cluster_clients import ClusterClients
from tests.component.source.sharded.follower import Follower
from tests.component.source.sharded.history import ACCOUNTS, BALANCE, BANK, DB, History, content, end_of, indexes

pytestmark = pytest.mark.since("5.0")

log = logging.getLogger(__name__)

"""`--log-cli-level=INFO` shows what a history had."""

SEEDS = [int(seed) for seed in os.environ.get("SLUICE_SHARDED_SEEDS", "").split(",") if seed]
STEPS = int(os.environ.get("SLUICE_SHARDED_STEPS", "25"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardedCluster]:
    directory: Path = tmp_path_factory.mktemp("sharded")
    with ShardedCluster(directory / "data", directory / "log", shards=("sa", "sb", "sc")) as cluster:
        yield cluster


def follow(cluster: ShardedCluster, seed: int, steps: int) -> Follower:
    wrong: list[str] = []

    def add_up(follower: Follower) -> None:
        rows = follower.named(BANK)
        total = sum(row["balance"] for row in rows.values())
        if rows and (total, len(rows)) != (ACCOUNTS * BALANCE, ACCOUNTS):
            wrong.append(f"{len(rows)} accounts with {total}")

    history = History(cluster, seed, steps)
    with closing(ClusterClients(cluster.config.uri)) as clients:
        follower = Follower(clients, majority_time(clients.config), add_up)
        history.prepare()
        running = threading.Thread(target=history.run)
        running.start()
        restarts = random.Random(seed)
        try:
            while running.is_alive():
                follower.step()
                if restarts.random() < 0.2:
                    follower.start_anew()
        finally:
            running.join()
        history.last_write()
        follower.follow(end_of(cluster), restarts=restarts)
        follower.watch.close()
    log.info(
        "seed %s: %s rows, %s transactions, %s starts", seed, follower.rows, history.transactions, follower.restarts
    )
    log.info("%s; %s failed, at last %s", dict(Counter(history.done)), len(history.failed), history.failed[-3:])
    assert history.errors == []
    assert wrong == []
    followed = {str(table.name): table.rows for table in follower.tables.values()}
    assert followed == content(cluster)
    assert {str(table.name): table.indexes for table in follower.tables.values()} == indexes(cluster)
    return follower


@pytest.fixture(autouse=True)
def swept(cluster: ShardedCluster) -> Iterator[None]:
    yield
    with cluster.router() as router:
        if router.known_by_config("databases", {"_id": DB}):
            ClusterDdl(router).drop_database(DB)


@pytest.mark.costly("a sharded cluster of its own, whose history is read again at each step")
def test_a_short_history(cluster: ShardedCluster) -> None:
    follower = follow(cluster, 1, 15)
    assert follower.rows > 100


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS or [2, 3, 4])
def test_histories(cluster: ShardedCluster, seed: int) -> None:
    follow(cluster, seed, STEPS)
