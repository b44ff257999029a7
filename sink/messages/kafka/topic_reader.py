"""`TopicReader`: reads partitions from named places up to where they end. It belongs to no consumer group, and saves nothing in the brokers.

`HeldRows` are rows that were read and not shown yet, each once, in the order of their places; in a temporary file, once they are many.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.errors import SinkUnavailable
from sink.messages.kafka.kafka_clients import KafkaClients, sink_error, translated
from sink.messages.kafka.topic_admin import TopicAdmin, replaced
from sluice_client.feed_reader import MessageGap

AT_ONCE = 5_000
_WAIT_SECONDS = 0.5
_PATIENCE_SECONDS = 60.0

Partition = tuple[str, int]


class ReadMessage(NamedTuple):
    partition: Partition
    offset: int
    key: bytes
    value: bytes | None
    headers: dict[str, bytes]


class TopicReader:
    """For one thread."""

    def __init__(
        self, clients: Callable[[], KafkaClients], options: KafkaSinkOptions, *, gapless: bool = False
    ) -> None:
        """`gapless`: each offset has a message. In a compacted topic some have none any more."""
        self._place = str(options)
        self._gapless = gapless
        self._admin = TopicAdmin(clients, options)
        settings = {
            **clients().consumer_settings,
            "auto.offset.reset": "error",  # messages that were removed are a gap
            "enable.partition.eof": True,
        }
        with translated(f"{self._place}: opening"):
            self._consumer = Consumer(settings)
        self.next: dict[Partition, int] = {}
        """The offset of the next message of each partition."""
        self.ends: dict[Partition, int] = {}
        """Where they ended when it was last asked."""
        self.ids: dict[str, str] = {}
        """Of the topics, as they have to be."""

    def add(self, topics: Mapping[str, int], start: Mapping[Partition, int] | None = None) -> None:
        """Topics with their numbers of partitions. Without a start they are read from their beginning."""
        for topic, count in topics.items():
            for number in range(count):
                self.next.setdefault((topic, number), (start or {}).get((topic, number), 0))
        with translated(f"{self._place}: reading"):
            self._consumer.assign([TopicPartition(*partition, offset) for partition, offset in self.next.items()])

    def partitions(self, topic: str) -> int | None:
        """None if there is no such topic."""
        found = self._admin.existing([topic]).get(topic)
        return None if found is None else found.partitions

    def _check_ids(self, topics: Iterable[str]) -> None:
        """A topic that is created again while it is read is found behind that, before anybody uses it."""
        for name, topic in self._admin.existing(topics).items():
            if (known := self.ids.setdefault(name, topic.id)) != topic.id:
                raise MessageGap(replaced(self._place, name, known, topic.id))

    def to_ends(self) -> Iterator[list[ReadMessage]]:
        """Everything up to where the partitions end now. Whoever stops between two batches may go on later."""
        counts: dict[str, int] = {}
        for topic, number in self.next:
            counts[topic] = max(counts.get(topic, 0), number + 1)
        self._check_ids(counts)
        ends = self.ends = self._admin.all_ends(counts)
        last_at = time.monotonic()
        while any(self.next[partition] < end for partition, end in ends.items()):
            with translated(f"{self._place}: reading"):
                found = self._consumer.consume(AT_ONCE, _WAIT_SECONDS)
            if any(message.error() is None for message in found):
                last_at = time.monotonic()
            elif time.monotonic() > last_at + _PATIENCE_SECONDS:
                raise SinkUnavailable(f"{self._place}: no broker has answered for {_PATIENCE_SECONDS:.0f} s")
            yield [read for message in found if (read := self._read(message)) is not None]
        self._check_ids(counts)

    def close(self) -> None:
        self._consumer.close()

    def _read(self, message: Message) -> ReadMessage | None:
        partition = str(message.topic()), message.partition() or 0
        offset, error = message.offset() or 0, message.error()
        at_end = error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001 - named so by the client
        if self._gapless and (at_end or error is None) and offset > self.next[partition]:
            raise self._gap(partition)
        if error is None:
            self.next[partition] = offset + 1
            headers = cast("Iterable[tuple[str, bytes]]", message.headers() or ())
            return ReadMessage(partition, offset, message.key() or b"", message.value(), dict(headers))
        if at_end:
            self.next[partition] = max(self.next[partition], offset)
            return None
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001 - as above
            raise self._gap(partition)
        if (
            error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        ):  # the client looks for the group that it must name, and does not use
            return None
        if error.fatal() or not error.retriable():
            raise sink_error(f"{self._place}: reading topic {partition[0]}", error)
        return None

    def _gap(self, partition: Partition) -> MessageGap:
        topic, number = partition
        return MessageGap(
            f"{self._place}: topic {topic}, partition {number}: expected the messages from offset {self.next[partition]} on, found that some were "
            f"removed; give the topics a longer retention and no compaction, and create the changefeed again with another prefix"
        )


MANY = 200_000
_CACHE_KIB = 64 << 10
_TABLE = """
    CREATE TABLE held (
        at TEXT NOT NULL, id TEXT NOT NULL, key BLOB NOT NULL, copied INTEGER NOT NULL, version TEXT NOT NULL, place TEXT NOT NULL,
        start INTEGER NOT NULL, raw BLOB NOT NULL,
        PRIMARY KEY (at, id, key, version)
    ) WITHOUT ROWID
"""


class HeldRow(NamedTuple):
    """`version`: of a copied document, where that of its table begins: two copies may have read it at one time. `partition`, `offset`: where its first copy was read. `key`: that of its message."""

    pos: str
    table: str
    key: bytes
    copied: bool
    version: str
    partition: str
    offset: int
    raw: bytes


class HeldRows:
    """For one thread."""

    def __init__(self) -> None:
        self._rows = sqlite3.connect("", isolation_level=None)
        self._rows.execute("PRAGMA journal_mode=OFF")
        self._rows.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        self._rows.execute(_TABLE)
        self._count = 0

    def add(self, rows: Iterable[HeldRow]) -> None:
        """A repeat, with the pos, the key and the version of one that is held, is dropped."""
        added = self._rows.executemany("INSERT OR IGNORE INTO held VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self._count += max(0, added.rowcount)

    @property
    def many(self) -> bool:
        """Enough for a round."""
        return self._count >= MANY

    def before(self, pos: str) -> Iterator[HeldRow]:
        """In the order of pos and table."""
        found = self._rows.execute("SELECT * FROM held WHERE at < ? ORDER BY at, id, key", (pos,))
        return map(HeldRow._make, found)

    def forget(self, pos: str, copied_pos: str, later: dict[str, tuple[str, str]]) -> None:
        """Changes before `pos` and copied documents before `copied_pos`; of the tables in `later`, before their own."""
        self._rows.execute("CREATE TEMP TABLE IF NOT EXISTS later (id TEXT PRIMARY KEY, at TEXT, copied TEXT)")
        self._rows.execute("DELETE FROM later")
        self._rows.executemany("INSERT INTO later VALUES (?, ?, ?)", ((id, *own) for id, own in later.items()))
        forgotten = self._rows.execute(
            "DELETE FROM held WHERE at < ? AND at < coalesce("
            "(SELECT CASE WHEN held.copied THEN later.copied ELSE later.at END FROM later WHERE later.id = held.id), "
            "CASE WHEN copied THEN ? ELSE ? END)",
            (max(pos, copied_pos), copied_pos, pos),
        )
        self._count -= forgotten.rowcount

    def first_offsets(self) -> dict[str, int]:
        """Of each partition of which rows are held."""
        return dict(self._rows.execute("SELECT place, min(start) FROM held GROUP BY place").fetchall())

    def close(self) -> None:
        self._rows.close()
