"""A changefeed writes into Kafka; what is in the topics keeps what it promises, wherever its node or the broker was killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from devstack.kafka.broker import KafkaBroker
from devstack.mongodb.server import Client
from tests.component.node.server_process import Server
from tests.e2e.node.filed_changefeed import TABLES, fill
from tests.e2e.node.mortal import Mortal
from tests.e2e.node.topic_changefeed import InTopics
from tests.e2e.node.workload import ddls_of_each_kind, writing
from tests.until import PATIENCE_SECONDS, until

pytestmark = pytest.mark.costly("a broker and all tasks die, and all that was written is read again")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One that dies."""
    directory = tmp_path_factory.mktemp("broker")
    with KafkaBroker(directory, directory / "log") as started:
        yield started


@pytest.fixture
def feed(
    node: Server, database: str, source_uri: str, source_client: Client, target_client: Client, broker: KafkaBroker
) -> Iterator[InTopics]:
    fill(source_client, database)
    yield InTopics(node, database, source_client, source_uri, target_client, broker)
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
    with writing(feed.source, TABLES):
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
    with writing(feed.source, TABLES):
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
    with writing(feed.source, TABLES):
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
        answer.result(PATIENCE_SECONDS)
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
