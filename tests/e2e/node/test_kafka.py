"""A changefeed writes into Kafka; what is in the topics keeps what it promises, wherever its node or the broker was killed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from changefeed.cluster_time import ClusterTime
from devstack.kafka.broker import KafkaBroker
from devstack.mongodb.server import Client
from tests.component.node.server_process import Server
from tests.component.sink.kafka.seen import Seen, seen
from tests.e2e.node.mortal import Mortal
from tests.e2e.node.topic_judge import judge_topics, rebuilt
from tests.e2e.node.workload import ddls_of_each_kind, until, writing

_TABLES = ("notes", "orders")
_PATIENCE = ("--session-ttl", "10", "--grace", "150")  # the node shares two cores with its Spark


@pytest.fixture(scope="module")
def node(etcd_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = Path(tmp_path_factory.mktemp("n1")) / "log"
    with Server(etcd_endpoint, log, *_PATIENCE, name="n1", roles="owner,processor") as started:
        yield started


class InTopics:
    """A changefeed into topics."""

    def __init__(self, node: Server, id: str, source: Client, source_uri: str, broker: KafkaBroker) -> None:
        self.node, self.id, self.broker = node, id, broker
        self.client, self.source = source, source[id]
        self._source_uri = source_uri

    def sluice(self, *arguments: str, input: str | None = None) -> str:
        answer = self.node.sluice(*arguments, input=input)
        assert answer.returncode == 0, f"sluice {' '.join(arguments)}: {answer.stderr}{answer.stdout}"
        return answer.stdout

    def configuration(self, query: str = "") -> str:
        return yaml.safe_dump(
            {
                "id": self.id,
                "source": self._source_uri,
                "sink": f"kafka://{self.broker.bootstrap}/{self.id}?topic={{prefix}}.{{coll}}&partitions=3{query}",
                "filter": {"tables": [f"{self.id}.*"]},
            }
        )

    def create(self, query: str = "") -> None:
        self.sluice("changefeed", "create", "-", input=self.configuration(query))

    def until_written(self) -> None:
        """All that the source has now is before the watermark."""
        now = ClusterTime.from_bson(self.client.admin.command("hello")["lastWrite"]["opTime"]["ts"])
        until(lambda: self._marked() > now, f"a watermark after {now}")

    def _marked(self) -> ClusterTime:
        marks = seen(self.broker, f"{self.id}.watermark")
        return ClusterTime.from_int(max((int(each.json["pos"][:16], 16) for each in marks), default=0))

    def topics(self) -> list[Seen]:
        """All messages of topics of rows, each partition in its order."""
        names = [name for name in self.broker.topics() if name.startswith(f"{self.id}.")]
        return seen(
            self.broker, *(name for name in names if name.rpartition(".")[2] not in {"ddl", "watermark", "feed"})
        )

    def ddls(self) -> list[Seen]:
        return seen(self.broker, f"{self.id}.ddl")

    def judge(self) -> list[str]:
        messages = self.topics()
        found = judge_topics(messages, self.ddls(), seen(self.broker, f"{self.id}.watermark"))
        there = {
            name: {json.dumps(row["_id"], default=str): row for row in self.source[name].find()}
            for name in self.source.list_collection_names(filter={"type": "collection"})
            if not name.startswith("system.")
        }
        for name, rows in rebuilt(messages, self.ddls()).items():
            if rows != there.get(name, {}):
                missing = sorted(there.get(name, {}).keys() - rows.keys())[:3]
                more = sorted(rows.keys() - there.get(name, {}).keys())[:3]
                found.append(
                    f"{name}: {len(rows)} rows, expected {len(there.get(name, {}))}: missing {missing}, more {more}"
                )
        return found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One that dies."""
    directory = tmp_path_factory.mktemp("broker")
    with KafkaBroker(directory, directory / "log") as started:
        yield started


@pytest.fixture
def feed(
    node: Server, database: str, source_uri: str, source_client: Client, broker: KafkaBroker
) -> Iterator[InTopics]:
    for table in _TABLES:
        source_client[database][table].insert_many([{"_id": f"row {n}", "n": n, "text": "x" * 50} for n in range(2000)])
    source_client[database].command("create", "old", viewOn="orders", pipeline=[{"$match": {"n": {"$lt": 9}}}])
    yield InTopics(node, database, source_client, source_uri, broker)
    node.sluice("changefeed", "remove", database, "--yes")


@pytest.fixture
def mortal(node: Server) -> Iterator[Mortal]:
    yield Mortal(node)
    if "SLUICE_FAILPOINTS" in node._environment:
        Mortal(node).comes_back()


def _kill_workers(node: Server) -> None:
    """The tasks, in the middle of whatever they do."""
    killed = 0
    for process in node.processes:
        with suppress(psutil.NoSuchProcess):  # it has just ended
            if "worker_daemon" in " ".join(process.cmdline()):
                process.kill()
                killed += 1
    assert killed


def test_what_is_in_the_topics_equals_the_source_whoever_is_killed(feed: InTopics) -> None:
    """The broker and the tasks get kill -9 while rows and DDL go on. The node does below."""
    feed.create()
    kills: tuple[Callable[[], object], ...] = (feed.broker.kill, partial(_kill_workers, feed.node))
    with writing(feed.source, _TABLES):
        for number, kill in enumerate(kills):
            ddls_of_each_kind(feed.source, number)
            kill()
            if not feed.broker.running:
                feed.broker.start()
            feed.until_written()
    feed.until_written()
    found = feed.judge()
    assert not found, "\n".join(found)


_STEPS = (
    *("window_begins", "window_read", "rows_due", "window_applied", "window_ended"),
    *("ddl_recorded", "ddl_executing_recorded", "ddl_executing", "ddl_applied", "ddl_released"),
)


@pytest.mark.soak
def test_a_node_that_is_killed_at_each_step_leaves_topics_that_can_be_read(feed: InTopics, mortal: Mortal) -> None:
    """Where a task dies and not the node, it dies again and again, and then the node is killed."""
    feed.create()
    feed.until_written()
    with writing(feed.source, _TABLES):
        for number, step in enumerate(_STEPS):
            mortal.dies_at(step)
            ddls_of_each_kind(feed.source, number)
            if step in {"window_read", "rows_due", "window_applied"}:
                mortal.until_ready()
                until(lambda: "pipeline_unavailable" in feed.sluice("changefeed", "query", feed.id), "the task's error")
            else:
                mortal.until_dead()
            mortal.comes_back()
            feed.until_written()
    feed.until_written()
    found = feed.judge()
    assert not found, "\n".join(found)


@pytest.mark.soak
def test_a_broker_that_hangs_or_dies_again_and_again_loses_nothing(feed: InTopics) -> None:
    feed.create()
    with writing(feed.source, _TABLES):
        for number in range(6):
            ddls_of_each_kind(feed.source, number)
            if number % 2:
                feed.broker.pause()
                time.sleep(number * 6)  # longer and shorter than the writer's patience
                feed.broker.resume()
            else:
                feed.broker.kill()
                time.sleep(number)
                feed.broker.start()
            feed.until_written()
    feed.until_written()
    found = feed.judge()
    assert not found, "\n".join(found)


def test_a_create_names_all_problems_at_once(feed: InTopics) -> None:
    admin = AdminClient(feed.broker.client)
    answers = admin.create_topics([NewTopic(f"{feed.id}.notes", 2, 1), NewTopic(f"{feed.id}.ddl", 1, 1)])
    for answer in answers.values():
        answer.result(30)
    producer = Producer(feed.broker.client)
    producer.produce(f"{feed.id}.ddl", b"of somebody")
    assert producer.flush(30) == 0
    refused = feed.node.sluice(
        "changefeed", "create", "-", input=feed.configuration("&replication=2&topic.retention.ms=soon")
    )
    said = " ".join((refused.stderr + refused.stdout).split())
    assert refused.returncode != 0
    for problem in (
        f"there are topics with others: {feed.id}.notes (2)",
        f"there are messages in {feed.id}.ddl",
        "INVALID_REPLICATION_FACTOR",
        "retention.ms",
    ):
        assert problem in said, said
