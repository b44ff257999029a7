"""A changefeed writes into Kafka, and the reference consumer makes a MongoDB of it that equals the source, whatever is killed on the way."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from changefeed.cluster_time import ClusterTime
from devstack.kafka.broker import KafkaBroker
from devstack.mongodb.server import Client
from tests.component.node.server_process import SLUICE, Server
from tests.component.sink.kafka.seen import seen
from tests.e2e.node.workload import ddls_of_each_kind, until, writing
from tests.independent_compare import differences

_TABLES = ("notes", "orders")
_PATIENCE = ("--session-ttl", "10", "--grace", "150")  # the node shares two cores with its Spark


@pytest.fixture(scope="module")
def node(etcd_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = Path(tmp_path_factory.mktemp("n1")) / "log"
    with Server(etcd_endpoint, log, *_PATIENCE, name="n1", roles="owner,processor") as started:
        yield started


class Consumed:
    """A changefeed into topics, and a database of the target into which a consumer writes what it finds there."""

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
        self.node, self.id, self.broker = node, id, broker
        self.client, self.source, self.target = source, source[id], target
        self._source_uri = source_uri
        self.uri = f"kafka://{broker.bootstrap}/{id}?topic={{prefix}}.{{coll}}&partitions=3"
        self.consume = ("consume", self.uri, "--to", target_uri)

    def sluice(self, *arguments: str, input: str | None = None) -> str:
        answer = self.node.sluice(*arguments, input=input)
        assert answer.returncode == 0, f"sluice {' '.join(arguments)}: {answer.stderr}{answer.stdout}"
        return answer.stdout

    def create(self, query: str = "") -> None:
        configuration = {
            "id": self.id,
            "source": self._source_uri,
            "sink": f"{self.uri}{query}",
            "filter": {"tables": [f"{self.id}.*"]},
        }
        self.sluice("changefeed", "create", "-", input=yaml.safe_dump(configuration))

    def until_written(self) -> None:
        """All that the source has now is before the watermark."""
        now = ClusterTime.from_bson(self.client.admin.command("hello")["lastWrite"]["opTime"]["ts"])
        until(lambda: self._marked() > now, f"a watermark after {now}")

    def _marked(self) -> ClusterTime:
        marks = seen(self.broker, f"{self.id}.watermark")
        return ClusterTime.from_int(max((int(each.json["pos"][:16], 16) for each in marks), default=0))

    def killed_after(self, seconds: float) -> None:
        """A consumer that follows gets kill -9."""
        with subprocess.Popen([str(SLUICE), *self.consume, "--follow"], stderr=subprocess.PIPE, text=True) as consumer:
            with suppress(subprocess.TimeoutExpired):
                _, said = consumer.communicate(timeout=seconds)
                pytest.fail(f"the consumer ended: {said}")
            consumer.kill()

    def differences(self) -> list[str]:
        assert "written up to" in self.sluice(*self.consume)
        return differences(self.client, self.id, self.target, self.id)


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
    for table in _TABLES:
        source_client[database][table].insert_many([{"_id": f"row {n}", "n": n, "text": "x" * 50} for n in range(2000)])
    source_client[database].command("create", "old", viewOn="orders", pipeline=[{"$match": {"n": {"$lt": 9}}}])
    source_client[database]["orders"].create_index("n", unique=True, partialFilterExpression={"n": {"$gt": 0}})
    yield Consumed(node, database, source_client, source_uri, target_client, target_uri, own_kafka())
    node.sluice("changefeed", "remove", database, "--yes")
    target_client.drop_database(database)


def test_what_is_consumed_equals_the_source_though_the_broker_and_the_consumer_were_killed(feed: Consumed) -> None:
    feed.create()
    with writing(feed.source, _TABLES):
        ddls_of_each_kind(feed.source, 0)
        feed.until_written()
        feed.killed_after(4)
        feed.broker.kill()
        ddls_of_each_kind(feed.source, 1)
        feed.broker.start()
        feed.killed_after(5)
        ddls_of_each_kind(feed.source, 2)
    feed.until_written()
    found = feed.differences()
    assert not found, "\n".join(found)


@pytest.mark.soak
@pytest.mark.parametrize("query", ["", "&encoding=bson&partition_by=table"])
def test_a_consumer_that_is_killed_again_and_again_goes_on(feed: Consumed, query: str) -> None:
    """After ever longer lives, while rows and DDL go on, and the node and the broker are killed, too."""
    feed.create(query)
    with writing(feed.source, _TABLES):
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
    found = feed.differences()
    assert not found, "\n".join(found)
