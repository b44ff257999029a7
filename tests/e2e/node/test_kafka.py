"""A changefeed writes into Kafka; what is in the topics keeps what it promises, wherever its node or the broker was killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from changefeed.cluster_time import ClusterTime
from devstack.kafka.broker import KafkaBroker
from devstack.mongodb.server import Client
from tests.component.node.server_process import Server
from tests.component.sink.kafka.seen import Seen, seen
from tests.e2e.node.topic_judge import judge_topics, rebuilt
from tests.e2e.node.workload import until, writing

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


@pytest.fixture
def feed(node: Server, database: str, source_uri: str, source_client: Client, kafka: KafkaBroker) -> Iterator[InTopics]:
    for table in _TABLES:
        source_client[database][table].insert_many([{"_id": f"row {n}", "n": n, "text": "x" * 50} for n in range(2000)])
    source_client[database].command("create", "old", viewOn="orders", pipeline=[{"$match": {"n": {"$lt": 9}}}])
    yield InTopics(node, database, source_client, source_uri, kafka)
    node.sluice("changefeed", "remove", database, "--yes")


def _ddls(source: Any, number: int) -> None:
    """Of each kind. The tables with rows stay."""
    made = f"made{number}"
    source.create_collection(made, capped=True, size=1 << 20)
    source[made].insert_many([{"_id": n} for n in range(10)])
    source[f"{made}s"].insert_one({"_id": 1, "by": "insert"})
    source["notes"].create_index(f"f{number}")
    source[f"{made}s"].create_index("by", unique=True)
    source[f"{made}s"].rename(f"renamed{number}")
    source.command("collMod", "orders", validationLevel="moderate" if number % 2 else "strict")
    source[f"renamed{number}"].insert_one({"_id": 2, "by": "its new name"})
    source.command("create", f"view{number}", viewOn="notes", pipeline=[])
    if number:
        source[f"view{number - 1}"].drop()
        source["notes"].drop_index(f"f{number - 1}_1")
        source[f"made{number - 1}"].drop()
        source[f"renamed{number}"].rename(f"renamed{number - 1}", dropTarget=True)


def test_what_is_in_the_topics_equals_the_source(feed: InTopics) -> None:
    feed.create()
    with writing(feed.source, _TABLES):
        for number in range(3):
            _ddls(feed.source, number)
            feed.until_written()
    feed.until_written()
    found = feed.judge()
    assert not found, "\n".join(found)
