"""Task, driver, owner, store or broker gets kill -9 between two steps; what is read back equals the source, and keeps W1 to W4.

At a held failpoint everything stands still: the victim is killed there, comes back, and the failpoint is released.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from devstack.kafka.broker import KafkaBroker
from devstack.mongodb.server import Client
from devstack.s3.server import make_bucket
from tests.e2e.node.filed_changefeed import TABLES, Bucketed, Filed, fill
from tests.e2e.node.topic_changefeed import InTopics
from tests.e2e.node.workload import ddls_of_each_kind, writing
from tests.e2e.sinks.gateway import KEY, SECRET, Gateway
from tests.e2e.sinks.nodes import (
    IN_COPIES,
    KEYS,
    OF_DRIVERS,
    OF_OWNERS,
    OF_TASKS,
    Nodes,
    kill_and_start,
)

pytestmark = [pytest.mark.sinks, pytest.mark.costly("because each victim dies at each step, and comes back")]


@pytest.fixture(scope="module")
def nodes(etcd_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = Nodes(etcd_endpoint, tmp_path_factory.mktemp("nodes"))
    with nodes.owner, nodes.processor:
        yield nodes


@dataclass(frozen=True)
class Case:
    nodes: Nodes
    feed: Filed | InTopics
    sink: str
    victims: Mapping[str, Callable[[], None]]


@pytest.fixture(params=["directory", "bucket", "topics"])
def case(
    request: pytest.FixtureRequest,
    nodes: Nodes,
    database: str,
    source_uri: str,
    source_client: Client,
    target_client: Client,
    tmp_path: Path,
) -> Iterator[Case]:
    fill(source_client, database)
    feed: Filed | InTopics
    feed = filed = Filed(nodes.owner, database, source_client, source_uri, target_client, tmp_path / "files")
    victims = {"task": nodes.kill_task, "driver": nodes.kill_driver, "owner": nodes.kill_owner}
    with ExitStack() as ending:
        if request.param == "bucket":
            gateway = ending.enter_context(Gateway(tmp_path / "gateway", tmp_path / "gateway.log"))
            bucket = database.replace("_", "-")
            make_bucket(gateway.endpoint, bucket)
            uri = f"s3://{KEY}:{SECRET}@{bucket}/some/prefix?region=us-east-1&endpoint={gateway.endpoint}&layout=hive"
            victims["store"] = partial(kill_and_start, gateway)
            feed = Bucketed(filed, uri, keys=KEYS)
        if request.param == "topics":
            broker = ending.enter_context(KafkaBroker(tmp_path / "broker", tmp_path / "broker.log"))
            victims["broker"] = partial(kill_and_start, broker)
            feed = InTopics(nodes.owner, database, source_client, source_uri, target_client, broker)
        yield Case(nodes, feed, request.param, victims)
        nodes.owner.sluice("changefeed", "remove", database, "--yes")
    target_client.drop_database(database)
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_killed_in_a_window_or_a_ddl(case: Case, target_uri: str) -> None:
    feed, numbers = case.feed, count()
    feed.create()
    feed.until_written()
    with writing(feed.source, TABLES):
        for point in (*OF_TASKS, *OF_DRIVERS[case.sink], *OF_OWNERS):
            for kill in case.victims.values():
                case.nodes.at(point, feed.id, kill, cause=lambda: ddls_of_each_kind(feed.source, next(numbers)))
                feed.until_written()
    _judged(feed, target_uri)


@pytest.mark.parametrize(("case", "point", "victim"), IN_COPIES, indirect=["case"])
def test_killed_in_a_copy(case: Case, target_uri: str, point: str, victim: str) -> None:
    feed = case.feed
    case.nodes.at(point, feed.id, case.victims[victim], cause=feed.create)
    with writing(feed.source, TABLES):
        feed.source["notes"].delete_many({"n": {"$lt": 100}})
        feed.source["orders"].update_many({"n": {"$lt": 50}}, {"$set": {"text": "changed"}})
        ddls_of_each_kind(feed.source, 0)
        feed.until_written()
    _judged(feed, target_uri)


def _judged(feed: Filed | InTopics, target_uri: str) -> None:
    feed.until_written()
    found = feed.wrong(target_uri)
    assert not found, "\n".join(found)
