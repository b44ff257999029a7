"""`MessagesInFiles`, `MessagesInTopics`: where the shop's changes are as messages, and how they are read back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.position import Position
from devstack.kafka.broker import KafkaBroker
from sink.messages.files.directory import Directory
from sink.messages.kafka.kafka_clients import kafka_clients
from sink.messages.kafka.kafka_reader import KafkaReader
from sluice_client.feed_directory import FeedDirectory
from sluice_client.feed_reader import FeedReader, StoredMessage
from sluice_client.file_reader import Reader


class MessagesInFiles:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.sink = f"file://{directory}?commit_interval=1s"

    def begun(self) -> bool:
        return (self._directory / "feed.json").exists()

    def mark(self) -> Position | None:
        mark = FeedDirectory(Directory(str(self._directory))).mark()
        return None if mark is None else mark.at

    def read(self) -> list[StoredMessage]:
        return _all(Reader(FeedDirectory(Directory(str(self._directory)))))

    def command(self) -> list[str]:
        return ["read", f"file://{self._directory}"]

    def __str__(self) -> str:
        return f"{sum(path.is_file() for path in self._directory.rglob('*'))} files"


class MessagesInTopics:
    """`broker`: it runs."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self.sink = f"kafka://{broker.bootstrap}/shop"

    def mark(self) -> Position | None:
        with self._reader() as reader:
            round = reader.look()
            return None if round is None else round.now.at

    def read(self) -> list[StoredMessage]:
        with self._reader() as reader:
            return _all(reader)

    def command(self) -> list[str]:
        return ["consume", self.sink]

    def __str__(self) -> str:
        return f"{len(self._broker.topics())} topics"

    @contextmanager
    def _reader(self) -> Iterator[KafkaReader]:
        options = KafkaSinkOptions.parse(self.sink)
        with closing(KafkaReader(partial(kafka_clients, options), options)) as reader:
            reader.identity()
            yield reader


def _all(reader: FeedReader) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    while (round := reader.look()) is not None:
        found += (shown.content for shown in reader.read(round) if isinstance(shown.content, StoredMessage))
    return found
