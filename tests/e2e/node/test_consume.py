"""A changefeed writes into Kafka, and the reference consumer makes a MongoDB of it that equals the source, whatever is killed on the way."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from devstack.kafka.broker import KafkaBroker
from devstack.mongodb.server import Client
from tests.component.node.server_process import Server
from tests.e2e.node.filed_changefeed import TABLES, fill
from tests.e2e.node.topic_changefeed import InTopics
from tests.e2e.node.workload import ddls_of_each_kind, writing
from tests.zygote import SLUICE


class Consumed(InTopics):
    """With a consumer that follows."""

    def __init__(
        self,
        node: Server,
        id: str,
        source: Client,
        source_uri: str,
        target: Client,
        target_uri: str,
        broker: KafkaBroker,
    ) -> None:
        super().__init__(node, id, source, source_uri, target, broker)
        self.target_uri = target_uri

    def killed_after(self, seconds: float) -> None:
        """A consumer that follows gets kill -9."""
        consume = [str(SLUICE), "consume", self.uri, "--to", self.target_uri, "--follow"]
        with subprocess.Popen(consume, stderr=subprocess.PIPE, text=True) as consumer:
            with suppress(subprocess.TimeoutExpired):
                _, said = consumer.communicate(timeout=seconds)
                pytest.fail(f"the consumer ended: {said}")
            consumer.kill()


@pytest.fixture
def feed(
    node: Server,
    database: str,
    source_uri: str,
    source_client: Client,
    target_uri: str,
    target_client: Client,
    own_kafka: Callable[..., KafkaBroker],
) -> Iterator[Consumed]:
    fill(source_client, database)
    yield Consumed(node, database, source_client, source_uri, target_client, target_uri, own_kafka())
    node.sluice("changefeed", "remove", database, "--yes")
    target_client.drop_database(database)


@pytest.mark.soak
def test_what_is_consumed_equals_the_source_though_the_broker_and_the_consumer_were_killed(feed: Consumed) -> None:
    feed.create()
    with writing(feed.source, TABLES):
        ddls_of_each_kind(feed.source, 0)
        feed.until_written()
        feed.killed_after(4)
        feed.broker.kill()
        ddls_of_each_kind(feed.source, 1)
        feed.broker.start()
        feed.killed_after(5)
        ddls_of_each_kind(feed.source, 2)
    feed.until_written()
    found = feed.differences(feed.target_uri)
    assert not found, "\n".join(found)


@pytest.mark.soak
@pytest.mark.parametrize("query", ["", "&encoding=bson&partition_by=table"])
def test_a_consumer_that_is_killed_again_and_again_goes_on(feed: Consumed, query: str) -> None:
    """After ever longer lives, while rows and DDL go on, and the node and the broker are killed, too."""
    feed.create(query)
    with writing(feed.source, TABLES):
        for number in range(8):
            ddls_of_each_kind(feed.source, number)
            if number in (2, 5):
                feed.broker.kill()
                feed.broker.start()
            if number in (3, 6):
                feed.node.kill()
                feed.node.start()
            feed.killed_after(2.5 + number / 2)
    feed.node.until_ready()
    feed.until_written()
    found = feed.differences(feed.target_uri)
    assert not found, "\n".join(found)
