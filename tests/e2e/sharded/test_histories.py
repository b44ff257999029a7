"""Random histories of a sharded cluster, with accidents of nodes, shards and config servers. Afterwards the target is what the shards own.

At each *cut* the changefeed is finalized while writers go on: the target then has one time of the cluster, and the whole sum of the bank.

    SLUICE_SHARDED_SEEDS=1-40       which histories
    SLUICE_SHARDED_STEPS=15         DDLs and moves of each
    SLUICE_SHARDED_MEMBERS=3        of each shard and of the config servers
    SLUICE_SHARDED_TALLY=FILE       a line for each history: what it met
"""

from __future__ import annotations

import json
import logging
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from devstack.mongodb.server import Client
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.router import ClusterRouter
from devstack.sharded.wire import CommandFailed
from tests.component.node.server_process import Server
from tests.component.source.sharded.history import ACCOUNTS, BALANCE, BANK, History
from tests.e2e.sharded.accidents import Accidents
from tests.e2e.sharded.site import PATIENCE, Site, owned_at, points_of, replicated_at
from tests.until import until

pytestmark = [
    pytest.mark.since("5.0"),
    pytest.mark.costly("config servers, three shards and two nodes with Spark"),
]

_SHARE_OF_CUTS = 0.2
_CHANGED_SINCE = (246, 250)
"""SnapshotUnavailable, StaleChunkHistory: it was resharded, or came to a shard that had nothing of it."""

log = logging.getLogger(__name__)


def _seeds(said: str) -> list[int]:
    found: list[int] = []
    for part in filter(None, said.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


SEEDS = _seeds(os.environ.get("SLUICE_SHARDED_SEEDS", ""))
STEPS = int(os.environ.get("SLUICE_SHARDED_STEPS", "12"))
MEMBERS = int(os.environ.get("SLUICE_SHARDED_MEMBERS", "1"))
TALLY = os.environ.get("SLUICE_SHARDED_TALLY", "")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardedCluster]:
    directory: Path = tmp_path_factory.mktemp("histories")
    with ShardedCluster(
        directory / "data", directory / "log", shards=("sa", "sb", "sc"), members=MEMBERS, cache_gb=0.25
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def nodes(etcd_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    directory: Path = tmp_path_factory.mktemp("nodes")
    with ExitStack() as stack:
        first = Server(etcd_endpoint, directory / "n1.log", *PATIENCE, name="n1", roles="owner,processor")
        second = Server(
            etcd_endpoint,
            directory / "n2.log",
            *PATIENCE,
            cluster=first.cluster,
            name="n2",
            roles="owner,processor",
        )
        yield [stack.enter_context(each) for each in (first, second)]


@pytest.fixture
def site(cluster: ShardedCluster, nodes: list[Server], target_client: Client, target_uri: str) -> Iterator[Site]:
    """It ends when a history failed, too, so that the next one is not disturbed."""
    site = Site(cluster, target_client, target_uri, nodes)
    yield site
    site.end()


def follow(sites: Sequence[Site], nodes: list[Server], *, seed: int, steps: int, accidents: int) -> Counter[str]:
    """Changefeeds of one cluster, side by side."""
    cluster, chance = sites[0].cluster, random.Random(seed)
    history = History(cluster, seed, steps)
    happening = Accidents(cluster, nodes, chance)
    started = time.monotonic()
    history.prepare()
    for site in sites:
        site.create()
    running = threading.Thread(target=history.run)
    running.start()
    try:
        while running.is_alive() and happening.met.total() < accidents:
            running.join(chance.uniform(0.5, 4))
            if chance.random() < _SHARE_OF_CUTS:
                for site in sites:
                    site.cut()
                happening.met["cut"] += 1
            else:
                happening.happen()
    finally:
        running.join()
        happening.end()
    history.last_write()
    assert history.errors == []
    for site in sites:
        site.until_equal()
        site.add_up()
        site.verify()
    met = happening.met + Counter(history.done)
    met["transactions"], met["seconds"] = history.transactions, round(time.monotonic() - started)
    log.info("seed %s: %s; %s commands failed, at last %s", seed, dict(met), len(history.failed), history.failed[-2:])
    if TALLY:
        with Path(TALLY).open("a", encoding="utf-8") as tally:
            tally.write(json.dumps({"seed": seed, "members": MEMBERS, "version": cluster.version, **met}) + "\n")
    return met


@pytest.mark.soak
def test_a_short_history_with_accidents(site: Site, nodes: list[Server]) -> None:
    met = follow([site], nodes, seed=1, steps=4, accidents=2)
    assert met["transactions"] > 0


@pytest.mark.soak
def test_at_each_sync_point_both_sides_are_the_same(site: Site, nodes: list[Server], target_client: Client) -> None:
    """All tables by continuous verification, and the bank by its sum and by a reader of the test."""
    history = History(site.cluster, seed=5, steps=10 * STEPS)
    history.prepare()
    site.create(sync_points={"every": "10s"}, verify={"continuous": True})
    until(lambda: points_of(target_client), "the first point")
    seen: list[str] = []
    met: Counter[str] = Counter()
    running = threading.Thread(target=history.run)
    running.start()
    try:
        with site.cluster.router() as router:
            while running.is_alive():
                running.join(1)
                for point in points_of(target_client, seen):
                    seen.append(point["_id"])
                    met.update(_looked_at(point, router, target_client))
                if len(seen) >= 3 and not met["killed"]:
                    met["killed"] += 1
                    nodes[0].kill()
                    nodes[0].start()
                    nodes[0].until_ready()
    finally:
        running.join()
    history.last_write()
    site.until_equal()
    verified = [point["verified"] for point in points_of(target_client) if "verified" in point]
    met["documents"] = sum(each["documents"] for each in verified)
    log.info("%s points: %s; %s, %s transactions", len(seen), dict(met), Counter(history.done), history.transactions)
    assert history.errors == []
    assert [each for each in verified if each["different"]] == []
    assert met["compared"]
    assert met["documents"]


def _looked_at(point: dict[str, Any], router: ClusterRouter, target: Client) -> Iterator[str]:
    if whys := [table["why"] for table in point["except"] if BANK in table["target"]]:
        yield f"excepted: {whys[0]}"
        return
    there = replicated_at(target, BANK, point["target"]["at"])
    assert (len(there), sum(row["balance"] for row in there)) == (ACCOUNTS, ACCOUNTS * BALANCE), point
    yield "sum"
    try:
        here = owned_at(router, BANK, point["source"]["at"])
    except CommandFailed as error:
        if error.code not in _CHANGED_SINCE:
            raise
        yield f"not readable any more: {error.reply.get('codeName')}"
        return
    assert there == here, point
    yield "compared"


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS or [2, 3])
def test_histories(site: Site, nodes: list[Server], seed: int) -> None:
    follow([site], nodes, seed=seed, steps=STEPS, accidents=STEPS)
