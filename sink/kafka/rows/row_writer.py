"""`KafkaRowWriter`, `KafkaDocumentLoader`: write the messages of a task into topics. What is acknowledged is there, and is seen."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.kafka_sink import KafkaSinkOptions, PartitionBy
from changefeed.documents.row_key import KeyRange
from changefeed.event import RowTally
from sink.kafka.brokers.sender import Sender
from sink.kafka.rows.large_rows import LargeRows
from sink.kafka.rows.partitioning import partition_of, partitions_of
from sink.kafka.rows.topic_facts import TopicFacts
from sink.kafka.topics import Topics
from sink.messages.message_format import KeyedMessage, MessageFormat
from sink.messages.row_message import OfTable
from sink.receipt import Receipt
from sink.row import AskedRows, RowChange, Sole, TargetTable, Unfinished, Write, WriteResult

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)


class TopicBatch(NamedTuple):
    """Messages, each with its topic and partition. There is no object for each: it would cost as much as its place in a partition."""

    topics: Sequence[str]
    partitions: Sequence[int]
    messages: Sequence[KeyedMessage]


class RowTopics:
    """Gives messages of rows their topic and partition. Nothing is asked."""

    def __init__(self, options: KafkaSinkOptions) -> None:
        self._topics = Topics(options)
        self._partitions = options.partitions
        self._by_table = options.partition_by is PartitionBy.TABLE
        self.of = OfTable(self._of)
        """Topic, and the partition of all rows if it does not follow from their keys."""

    def _of(self, table: TargetTable) -> tuple[str, int]:
        return self._topics.of(table.name), partition_of(table.id.encode(), self._partitions)

    def batch(self, topics: Sequence[str], of_tables: Sequence[int], messages: Sequence[KeyedMessage]) -> TopicBatch:
        """`of_tables`: the partitions of their tables. Each message of a row has a key."""
        if self._by_table:
            return TopicBatch(topics, of_tables, messages)
        keys = [key for key, _, _ in messages if key is not None]
        return TopicBatch(topics, partitions_of(keys, self._partitions), messages)


class KafkaRowWriter:
    """Rows never wait and never differ: nothing is read. A replayed change has the same message as before."""

    def __init__(
        self, format: MessageFormat, topics: RowTopics, facts: TopicFacts, large: LargeRows, sender: Sender
    ) -> None:
        self._format = format
        self._topics = topics
        self._facts = facts
        self._large = large
        self._sender = sender

    def begin(
        self,
        unfinished: Unfinished,  # noqa: ARG002 - no row waits
        sole: Sole | None = None,  # noqa: ARG002 - no row was refused
        asked: Sequence[AskedRows] = (),  # noqa: ARG002 - nothing can be compared, so nothing is asked
    ) -> KafkaRun:
        """What an earlier run has not settled is given up."""
        self._sender.abandon()
        return KafkaRun(self)

    def prepare(self, changes: Sequence[RowChange]) -> TopicBatch:
        topics: list[str] = []
        partitions: list[int] = []
        messages: list[KeyedMessage] = []
        change_of, table = self._format.change, None
        topic, partition = "", 0
        for change in changes:
            if change.table is not table:
                table = change.table
                topic, partition = self._topics.of(table)
            for message in change_of(change):
                topics.append(topic)
                partitions.append(partition)
                messages.append(message)
        return self._topics.batch(topics, partitions, messages)

    def write(self, batch: TopicBatch) -> WriteResult:
        sizes = [len(key or b"") + len(value or b"") for key, value, _ in batch.messages]
        try:
            self._facts.check(set(batch.topics))
            self._sender.send(self._large.fitted(zip(*batch, strict=True), sizes))
        except Exception:
            self.give_up()
            raise
        return WriteResult(tally=RowTally(messages=len(sizes), message_bytes=sum(sizes)))

    def settle(self) -> WriteResult:
        began_at = time.monotonic()
        try:
            self._sender.settle()
        except Exception:
            self.give_up()
            raise
        return WriteResult(tally=RowTally(confirm_seconds=time.monotonic() - began_at))

    def give_up(self) -> None:
        self._sender.abandon()
        self._facts.forget()

    def close(self) -> None:
        self._sender.abandon()


class KafkaRun:
    def __init__(self, writer: KafkaRowWriter) -> None:
        self._writer = writer

    def prepare(self, changes: Sequence[RowChange], *, replay: bool) -> Write:  # noqa: ARG002 - a message is the same in a replay
        return partial(self._writer.write, self._writer.prepare(changes))

    def settle(self) -> WriteResult:
        return self._writer.settle()


class KafkaDocumentLoader:
    """Nothing is cleared: what an earlier attempt has sent is true at its time, and all changes since the copy's start follow."""

    def __init__(self, writer: KafkaRowWriter, format: MessageFormat, topics: RowTopics, table: TargetTable) -> None:
        self._writer = writer
        self._copied = format.copied
        self._topics = topics
        self._table = table

    def empty(self) -> bool:
        return True

    def clear(self, range: KeyRange) -> int:  # noqa: ARG002 - nothing can be cleared
        return 0

    def load(self, documents: Sequence[bytes], read_ts: ClusterTime) -> None:
        copied, table = self._copied, self._table
        messages = [message for document in documents for message in copied(table, document, _key(document), read_ts)]
        topic, partition = self._topics.of(table)
        self._writer.write(self._topics.batch([topic] * len(messages), [partition] * len(messages), messages))

    def finish(self) -> tuple[Receipt, ...]:
        self._writer.settle()
        return ()


def _key(document: bytes) -> bytes:
    return bson.encode({"_id": RawBSONDocument(document, _RAW)["_id"]})
