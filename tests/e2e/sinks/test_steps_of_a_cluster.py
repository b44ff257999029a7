"""As in `test_steps.py`, while a sharded cluster lives through a random history. What an independent consumer makes of the messages is what the shards own."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from devstack.kafka.broker import KafkaBroker
from devstack.mongodb.server import Client
from devstack.s3.server import make_bucket
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from tests.component.source.sharded.history import DB, TABLES, History
from tests.e2e.sharded.test_histories_as_messages import FiledSite, MessageSite, TopicSite
from tests.e2e.sinks.gateway import KEY, SECRET, Gateway
from tests.e2e.sinks.nodes import BEFORE_A_CHUNK, IN_COPIES, OF_DRIVERS, OF_OWNERS, OF_TASKS, Nodes, kill_and_start
from tests.e2e.sinks.test_steps import nodes
from tests.until import until

pytestmark = [pytest.mark.sinks, pytest.mark.costly("a cluster lives, and nodes with Spark start again and again")]
__all__ = ["nodes"]

log = logging.getLogger(__name__)

_ENDLESS = 1_000_000
_BUCKET, _PREFIX = "feeds", "some/prefix"


@dataclass(frozen=True)
class Case:
    nodes: Nodes
    site: MessageSite
    cluster: ShardedCluster
    sink: str
    victims: Mapping[str, Callable[[], None]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ShardedCluster]:
    """One for each case: a recipient of 6.0.5 may wait for ever for the session of its own migration, and then nothing of its table can be done."""
    directory = tmp_path / "cluster"
    with (
        ShardedCluster(directory / "data", directory / "log", shards=("sa", "sb", "sc")) as cluster,
        _started_again(cluster),
    ):
        yield cluster
    shutil.rmtree(directory)


@contextmanager
def _started_again(cluster: ShardedCluster) -> Iterator[None]:
    """As a service manager does: a server of 6.0.5 ends by itself now and then while chunks move."""
    over = threading.Event()

    def watch() -> None:
        members = [member for each in (cluster.config, *cluster.shards.values()) for member in each.members]
        while not over.wait(1):
            for member in members:
                if not member.running:
                    log.warning("%s ended by itself: %s", member.name, _last_words(member.log))
                    member.start()

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def _last_words(log: Path) -> list[str]:
    with log.open(encoding="utf-8", errors="replace") as lines:
        return [line for line in deque(lines, 300) if '"s":"F"' in line][:3]


@pytest.fixture(params=["directory", "bucket", "topics"])
def case(
    request: pytest.FixtureRequest, nodes: Nodes, cluster: ShardedCluster, target_client: Client, tmp_path: Path
) -> Iterator[Case]:
    victims = {"task": nodes.kill_task, "driver": nodes.kill_driver, "owner": nodes.kill_owner}
    History(cluster, seed=0, steps=0).prepare()
    with ExitStack() as ending:
        site: MessageSite
        if request.param == "topics":
            broker = ending.enter_context(KafkaBroker(tmp_path / "broker", tmp_path / "broker.log"))
            victims["broker"] = partial(kill_and_start, broker)
            site = TopicSite(cluster, target_client, broker, "feed", [nodes.owner])
        elif request.param == "bucket":
            gateway = ending.enter_context(Gateway(tmp_path / "gateway", tmp_path / "gateway.log"))
            make_bucket(gateway.endpoint, _BUCKET)
            victims["store"] = partial(kill_and_start, gateway)
            uri = f"s3://{KEY}:{SECRET}@{_BUCKET}/{_PREFIX}?region=us-east-1&endpoint={gateway.endpoint}"
            objects = tmp_path / "gateway" / "objects" / _BUCKET / _PREFIX
            site = FiledSite(cluster, target_client, objects, [nodes.owner], uri)
        else:
            site = FiledSite(cluster, target_client, tmp_path / "feed", [nodes.owner])
        yield Case(nodes, site, cluster, request.param, victims)
        site.end()


@contextmanager
def _happening(cluster: ShardedCluster, seed: int) -> Iterator[History]:
    """No longer than it is needed: it has more DDL than busy nodes get done."""
    history = History(cluster, seed, _ENDLESS)
    running = threading.Thread(target=history.run)
    running.start()
    try:
        yield history
    finally:
        history.end()
        running.join()
    assert history.errors == []


def test_killed_in_a_window_or_a_ddl(case: Case) -> None:
    case.site.create()
    points = (*OF_TASKS, *OF_DRIVERS[case.sink], *OF_OWNERS)
    for seed, (point, kill) in enumerate(product(points, case.victims.values())):
        with _happening(case.cluster, seed):
            case.nodes.at(point, "shop", kill, cause=lambda: None)
        case.site.until_written()
    _judged(case)


@pytest.mark.parametrize(("case", "point", "victim"), IN_COPIES, indirect=["case"])
def test_killed_in_a_copy(case: Case, point: str, victim: str) -> None:
    with _happening(case.cluster, seed=1):
        case.nodes.at(point, "shop", case.victims[victim], cause=case.site.create)
    case.site.until_written()
    _judged(case)


def test_a_chunk_is_read_when_another_table_has_the_name(case: Case) -> None:
    """Under all shards, while no owner tells of the renames: what is read belongs to no table, and a consumer leaves it out."""
    mine, other = TABLES[:2]
    with case.cluster.router() as router:
        for number, ns in product(range(0, 200, 5), (mine, other)):
            router.insert(ns, {"_id": f"{ns} {number}", "k": number, "b": number})

    def rename() -> None:
        case.nodes.owner.kill()
        with case.cluster.router() as router:
            ClusterDdl(router).rename(mine, f"{DB}.away")
            ClusterDdl(router).rename(other, mine)

    def told_of() -> set[str]:
        copied = [each for each in map(json.loads, case.site.lines()) if each["op"] == "r"]
        return {each["id"] for each in copied if each["key"]["_id"] == f"{other} 0"}

    case.nodes.at(BEFORE_A_CHUNK, "shop", rename, cause=case.site.create)
    until(lambda: len(told_of()) == 1, "the chunk is read")
    case.nodes.owner.start()
    case.nodes.owner.until_ready()
    _judged(case)
    assert len(told_of()) == 2


def _judged(case: Case) -> None:
    History(case.cluster, seed=0, steps=0).last_write()
    case.site.until_equal()
    case.site.add_up()
    case.site.verify()
