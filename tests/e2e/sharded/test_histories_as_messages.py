"""Random histories of a sharded cluster, with accidents, into files and topics. What an independent consumer makes of them is what the shards own.

Its variables are those of `test_histories.py`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from devstack.kafka.broker import KafkaBroker
from devstack.mongodb.server import Client
from devstack.sharded.cluster import ShardedCluster
from tests.component.node.server_process import Server
from tests.component.sink.kafka.seen import Seen, seen
from tests.component.source.sharded.history import ACCOUNTS, BALANCE, BANK, content, end_of, indexes
from tests.e2e.node.event_judge import judge
from tests.e2e.node.topic_judge import judge_topics
from tests.e2e.sharded.independent_consumer import Consumer, found, in_directory
from tests.e2e.sharded.site import Site, difference
from tests.e2e.sharded.test_histories import SEEDS, STEPS, cluster, follow, nodes
from tests.until import until

pytestmark = [
    pytest.mark.since("5.0"),
    pytest.mark.costly("config servers, three shards and two nodes with Spark"),
]
__all__ = ["cluster", "nodes"]

log = logging.getLogger(__name__)


class MessageSite(Site):
    """Its target is what an independent consumer makes of the messages."""

    def mark(self) -> str:
        """The newest watermark."""
        raise NotImplementedError

    def lines(self) -> Iterable[str]:
        """All that is there, but marks."""
        raise NotImplementedError

    def wrong(self) -> list[str]:
        """W1 to W4, of all that is there."""
        raise NotImplementedError

    def cut(self) -> None:
        """Its tasks end wherever they are."""
        self.sluice("changefeed", "pause", self.feed)
        self.sluice("changefeed", "resume", self.feed)

    def until_written(self) -> None:
        end = f"{end_of(self.cluster).next().to_int():016X}"
        told = lambda: f"the last is {self.mark()}; {self.sluice('changefeed', 'query', self.feed)}"  # noqa: E731
        until(lambda: self.mark() >= end, f"a watermark at {end}", told)

    def until_equal(self) -> None:
        self.until_written()
        until(self._copied, "the ends of all copies before a watermark", lambda: f"{self._consumer.copying}")
        owned = content(self.cluster)
        assert sum(row["balance"] for row in owned[BANK].values()) == ACCOUNTS * BALANCE, "at the source itself"
        assert self._consumer.wrong == []
        made = self._consumer.by_name
        assert not difference("rows", {name: table.rows for name, table in made.items()}, owned)
        assert not difference("indexes", {name: table.indexes for name, table in made.items()}, indexes(self.cluster))
        log.info("%s whole sums", self._consumer.added_up)

    def _copied(self) -> bool:
        """Whether everything is there of all tables that have not ended."""
        self._consumer = Consumer(BANK, ACCOUNTS * BALANCE)
        self._consumer.take(found(self.lines(), self.mark()))
        return not self._consumer.copying

    def add_up(self) -> None:
        assert self._consumer.added_up

    def verify(self) -> None:
        assert self.wrong() == []


class FiledSite(MessageSite):
    """`uri`: if they are read otherwise than as the files of `directory`."""

    def __init__(
        self, cluster: ShardedCluster, target: Client, directory: Path, nodes: list[Server], uri: str = ""
    ) -> None:
        self._uri, self._directory = uri or f"file://{directory}", directory
        super().__init__(cluster, target, f"{self._uri}{'&' if '?' in self._uri else '?'}commit_interval=1s", nodes)

    def mark(self) -> str:
        found = [""]
        for path in self._directory.glob("checkpoint/*.json"):
            with suppress(FileNotFoundError):  # a newer one has come, and old ones are removed
                checkpoint = json.loads(path.read_text())
                found.append(checkpoint["pos"] if checkpoint["tables"] == "all" else "")
        return max(found)

    def lines(self) -> Iterable[str]:
        return in_directory(self._directory)

    def wrong(self) -> list[str]:
        """As `sluice read` shows it."""
        shown = [json.loads(line) for line in self.sluice("read", self._uri).splitlines()]
        return judge(shown, [self.mark()])


class TopicSite(MessageSite):
    def __init__(
        self, cluster: ShardedCluster, target: Client, broker: KafkaBroker, prefix: str, nodes: list[Server]
    ) -> None:
        self._broker, self._prefix = broker, prefix
        super().__init__(cluster, target, f"kafka://{broker.bootstrap}/{prefix}?partitions=3", nodes)

    def _of(self, name: str) -> list[Seen]:
        return seen(self._broker, f"{self._prefix}.{name}")

    def _rows(self) -> list[Seen]:
        return seen(self._broker, *(name for name in self._broker.topics() if name.startswith(f"{self._prefix}.shop.")))

    def mark(self) -> str:
        if f"{self._prefix}.watermark" not in self._broker.topics():
            return ""
        marks = [each.json for each in self._of("watermark")]
        return max((each["pos"] for each in marks if each["tables"] == "all"), default="")

    def lines(self) -> Iterable[str]:
        return [each.value.decode() for each in [*self._rows(), *self._of("ddl")] if each.value is not None]

    def wrong(self) -> list[str]:
        return judge_topics(self._rows(), self._of("ddl"), self._of("watermark"))


@pytest.fixture
def sites(
    cluster: ShardedCluster, nodes: list[Server], target_client: Client, kafka: KafkaBroker, tmp_path: Path
) -> Iterator[list[MessageSite]]:
    """One history is told into both."""
    prefix = f"feed{tmp_path.parent.name}{tmp_path.name}"
    files = FiledSite(cluster, target_client, tmp_path / "feed", nodes)
    topics = TopicSite(cluster, target_client, kafka, prefix, nodes)
    files.feed, topics.feed = "files", "topics"
    yield [files, topics]
    for site in (files, topics):
        site.end()


def test_a_short_history_with_accidents(sites: list[MessageSite], nodes: list[Server]) -> None:
    met = follow(sites, nodes, seed=1, steps=4, accidents=2)
    assert met["transactions"] > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS or [2, 3])
def test_histories(sites: list[MessageSite], nodes: list[Server], seed: int) -> None:
    follow(sites, nodes, seed=seed, steps=STEPS, accidents=STEPS)
