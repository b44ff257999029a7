"""A changefeed into Kafka, as tests see it: what is in the topics, and what a consumer makes of that."""

from __future__ import annotations

import json

import yaml

from changefeed.cluster_time import ClusterTime
from devstack.kafka.broker import KafkaBroker
from devstack.mongodb.server import Client
from tests.component.node.server_process import Server
from tests.component.sink.kafka.seen import Seen, seen
from tests.e2e.node.topic_judge import judge_topics, rebuilt
from tests.independent_compare import differences
from tests.until import until


class InTopics:
    """A changefeed into topics, and a database of the target into which the reference consumer writes what it finds there."""

    def __init__(
        self, node: Server, id: str, source: Client, source_uri: str, target: Client, broker: KafkaBroker
    ) -> None:
        self.node, self.id, self.broker = node, id, broker
        self.client, self.source, self.target = source, source[id], target
        self.uri = f"kafka://{broker.bootstrap}/{id}?topic={{prefix}}.{{coll}}&partitions=3"
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
                "sink": f"{self.uri}{query}",
                "filter": {"tables": [f"{self.id}.*"]},
            }
        )

    def create(self, query: str = "") -> None:
        self.sluice("changefeed", "create", "-", input=self.configuration(query))

    def until_written(self) -> None:
        """All that the source has now is before the watermark."""
        now = ClusterTime.from_bson(self.client.admin.command("hello")["lastWrite"]["opTime"]["ts"])
        until(lambda: self._marked() > now, f"a watermark after {now}", self._told)

    def _told(self) -> str:
        return f"The last is {self._marked()}. {self.sluice('changefeed', 'query', self.id)}\n{self.node.log[-8000:]}"

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

    def differences(self, target_uri: str) -> list[str]:
        """Between the source and what a consumer makes of the topics."""
        assert "written up to" in self.sluice("consume", self.uri, "--to", target_uri)
        return differences(self.client, self.id, self.target, self.id)

    def wrong(self, target_uri: str) -> list[str]:
        return [*self.judge(), *self.differences(target_uri)]
