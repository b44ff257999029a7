"""`KafkaRowWriter` and `KafkaDocumentLoader` write the messages of a task into topics. What is acknowledged is there, and is seen.

`LargeRows` says what becomes of a message that is larger than its topic takes, or than a producer holds:

    fail          its table stops, and all others go on
    key_only      the message has no more than its key and headers say
    claim_check   the message is in a file, and what is sent says where. The file is written before, by a put that does nothing at a repeat

`TopicFacts` is what a writer has to know of a topic, asked again now and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Self

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.kafka_options import LEAST_MESSAGE_BYTES, KafkaSinkOptions, LargeRow
from changefeed.config.sinks.topic_rules import PartitionBy
from changefeed.documents.row_key import id_alone, key_text
from changefeed.errors import MessagesLost, RowRejected, SinkRefused
from changefeed.event import RowTally
from changefeed.table import COPIED_AGAIN, TableId
from sink.messages.files.store import Store
from sink.messages.kafka.kafka_clients import MOST_BYTES
from sink.messages.kafka.sender import Addressed, Sender
from sink.messages.kafka.topic_admin import TopicAdmin, replaced
from sink.messages.kafka.topics import Topics, partition_of, partitions_of
from sink.messages.message_format import POS, TABLE, KeyedMessage, MessageFormat, claim_check, claim_name, key_only
from sink.messages.row_message import OfTable, without_json
from sink.receipt import Receipt
from sink.row import AskedRows, RowChange, Sole, TargetTable, Unfinished, Write, WriteResult
from sink.sink import DocumentLoader
from sluice_client.extended_json import NoJson

_BY_KEY = -1
_EXACT = "encoding=bson, which format=sluice and format=mongodb have"


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
        self._rule_of = options.rule_of
        self._ways = {rule.partition_by for rule in options.rules}
        self.of = OfTable(self._of)
        """Topic, and the partition of all rows, or `_BY_KEY`."""

    def _of(self, table: TargetTable) -> tuple[str, int]:
        by_table = self._rule_of(table.name).partition_by is PartitionBy.TABLE
        return self._topics.of(table.name), partition_of(table.id.encode(), self._partitions) if by_table else _BY_KEY

    def batch(self, topics: Sequence[str], of_tables: Sequence[int], messages: Sequence[KeyedMessage]) -> TopicBatch:
        """`of_tables`: the partitions of their tables. Each message of a row has a key."""
        if self._ways == {PartitionBy.TABLE}:
            return TopicBatch(topics, of_tables, messages)
        found = partitions_of([key for key, _, _ in messages if key is not None], self._partitions)
        if PartitionBy.TABLE in self._ways:
            found = [key if table == _BY_KEY else table for key, table in zip(found, of_tables, strict=True)]
        return TopicBatch(topics, found, messages)


class KafkaRowWriter:
    """Rows never wait and never differ: nothing is read. A replayed change has the same message as before. It is its own run."""

    def __init__(
        self, format: MessageFormat, topics: RowTopics, facts: TopicFacts, large: LargeRows, sender: Sender
    ) -> None:
        self.format = format
        self.topics = topics
        self._facts = facts
        self._large = large
        self._sender = sender

    def begin(
        self,
        unfinished: Unfinished,  # noqa: ARG002 - no row waits
        sole: Sole | None = None,  # noqa: ARG002 - no row was refused
        asked: Sequence[AskedRows] = (),  # noqa: ARG002 - nothing can be compared, so nothing is asked
    ) -> Self:
        """What an earlier run has not settled is given up."""
        self._sender.abandon()
        return self

    def prepare(self, changes: Sequence[RowChange], *, replay: bool) -> Write:  # noqa: ARG002 - a message is the same in a replay
        topics: list[str] = []
        partitions: list[int] = []
        messages: list[KeyedMessage] = []
        change_of, table = self.format.change, None
        topic, partition = "", 0
        for change in changes:
            if change.table is not table:
                table = change.table
                topic, partition = self.topics.of(table)
            try:
                made = change_of(change)
            except NoJson as error:
                raise without_json(str(change), table, error, _EXACT) from None
            for message in made:
                topics.append(topic)
                partitions.append(partition)
                messages.append(message)
        return partial(self.write, self.topics.batch(topics, partitions, messages))

    def write(self, batch: TopicBatch) -> WriteResult:
        sizes = [len(key or b"") + len(value or b"") for key, value, _ in batch.messages]
        try:
            self._facts.check(batch)
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


class KafkaDocumentLoader(DocumentLoader):
    """Nothing is cleared: what an earlier attempt has sent is true at its time, and all changes since the copy's start follow."""

    def __init__(self, writer: KafkaRowWriter, table: TargetTable) -> None:
        self._writer = writer
        self._table = table

    def load(self, documents: Sequence[bytes], read_ts: ClusterTime) -> None:
        copied, table, topics = self._writer.format.copied, self._table, self._writer.topics
        messages: list[KeyedMessage] = []
        for document in documents:
            key = id_alone(document)
            try:
                messages += copied(table, document, key, read_ts)
            except NoJson as error:
                raise without_json(f"{table.source} {key_text(key)}", table, error, _EXACT) from None
        topic, partition = topics.of(table)
        self._writer.write(topics.batch([topic] * len(messages), [partition] * len(messages), messages))

    def finish(self) -> tuple[Receipt, ...]:
        self._writer.settle()
        return ()


_FRAME = 512
"""What a broker counts around a message."""
_MOST_SHOWN = 100
_SMALL = LEAST_MESSAGE_BYTES - 2048
"""With key and value of less than this, each topic takes it."""


class LargeRows:
    def __init__(self, how: LargeRow, claims: Store | None, facts: TopicFacts, place: str) -> None:
        """`claims`: where the files are, with `claim_check`."""
        self._how = how
        self._claims = claims
        self._facts = facts
        self._place = place

    def fitted(self, messages: Iterable[Addressed], sizes: Sequence[int]) -> Iterable[Addressed]:
        """`sizes`: of keys and values."""
        return messages if max(sizes, default=0) < _SMALL else self._each(messages, sizes)

    def _each(self, messages: Iterable[Addressed], sizes: Sequence[int]) -> Iterator[Addressed]:
        """A generator: each file is written before its message is sent."""
        for (topic, partition, message), content in zip(messages, sizes, strict=True):
            if content < _SMALL:
                yield topic, partition, message
                continue
            size, limit = message.size + _FRAME, min(self._facts.limit(topic), MOST_BYTES)
            yield topic, partition, message if size <= limit else self._reduced(topic, message, size, limit)

    def _reduced(self, topic: str, message: KeyedMessage, size: int, limit: int) -> KeyedMessage:
        headers = dict(message.headers)
        if self._how is LargeRow.KEY_ONLY:
            return key_only(message)
        if self._how is LargeRow.CLAIM_CHECK and self._claims is not None:
            name = claim_name(message)
            self._claims.create(name, message.value or b"")
            return claim_check(message, f"{self._claims}/{name}")
        key = (message.key or b"")[:_MOST_SHOWN].decode(errors="replace")
        raised = "(max.message.bytes); raise it and resume the table, or "
        remedy = raised if limit < MOST_BYTES else "(all that Sluice sends); "
        raise RowRejected(
            f"{self._place}: topic {topic}: the row {key} at {headers[POS].decode()} has {size} bytes as a message, expected at most "
            f"{limit} {remedy}create a changefeed with large=claim_check or large=key_only"
        ).about(TableId(headers[TABLE].decode()))


_GOOD_FOR_SECONDS = 30.0


class TopicFacts:
    def __init__(
        self,
        admin: TopicAdmin,
        place: str,
        partitions: int,
        recorded: Callable[[], Mapping[str, str]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`partitions`: those that each topic of rows has for life. `recorded`: the ids of topics, by their names."""
        self._admin = admin
        self._place = place
        self._partitions = partitions
        self._recorded = recorded
        self._ids: dict[str, str] = {}
        self._monotonic = monotonic
        self._checked_at: dict[str, float] = {}
        self._limits: dict[str, tuple[int, float]] = {}

    def check(self, batch: TopicBatch) -> None:
        """Raises if one of its topics does not exist, has another number of partitions, or is another one under the name."""
        now = self._monotonic()
        due = [topic for topic in set(batch.topics) if now >= self._checked_at.get(topic, 0.0)]
        if not due:
            return
        found = self._admin.shown(due)
        if any(self._ids.get(topic) != each.id for topic, each in found.items()):
            self._ids |= self._recorded()
        for topic in due:
            if topic not in found:
                raise SinkRefused(
                    f"{self._place}: expected a topic {topic}, found none; it was deleted, with all messages in it: create it with "
                    f"{self._partitions} partitions and have its tables {COPIED_AGAIN}, or create another changefeed"
                )
            self._admin.check_partitions(topic, found[topic].partitions, self._partitions)
            if (known := self._ids.setdefault(topic, found[topic].id)) != found[topic].id:
                table = dict(batch.messages[batch.topics.index(topic)].headers)[TABLE]
                raise MessagesLost(replaced(self._place, topic, known, found[topic].id)).about(TableId(table.decode()))
            self._checked_at[topic] = now + _GOOD_FOR_SECONDS

    def limit(self, topic: str) -> int:
        """The largest message that it takes."""
        now = self._monotonic()
        limit, until = self._limits.get(topic, (0, 0.0))
        if now >= until:
            limit = self._admin.limits([topic])[topic]
            self._limits[topic] = limit, now + _GOOD_FOR_SECONDS
        return limit

    def forget(self) -> None:
        """After an error, everything is asked again."""
        self._checked_at.clear()
        self._limits.clear()
