"""`KafkaDdlApplier`, `KafkaMarks`: what the owner writes into topics: DDL, schemas, and watermarks.

A DDL goes to each partition of the topics in its scope, and to the topic of all DDL, before it is recorded as done: the rows behind it
wait for that. A crash in between sends it again, with the same position. A mark follows a checkpoint that is in etcd, so it is true for
ever, and may be repeated or come late.

In-band marks go to partitions that have had a message since their last one. All others get one each minute, so that a consumer of a
quiet partition knows that it misses nothing. What the owner asks and writes for them is bounded: about a thousand partitions a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from changefeed.cluster_time import ClusterTime
from changefeed.errors import DdlRefused, SinkRefused, SinkUnavailable
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, Observation
from changefeed.table import COPIED_AGAIN, TableId, TableKind, TableName, TableSchema
from sink.ddl import BeginAgain, CreateTable, DdlApplier, DownstreamDdl, RenameTable, Skip, names_of
from sink.messages.kafka.feed_topic import FeedTopic
from sink.messages.kafka.sender import Addressed, Sender
from sink.messages.kafka.topic_admin import AskedTopic, TopicAdmin, replaced
from sink.messages.kafka.topics import Topics
from sink.messages.message import Message, copy_end_message, emptied_message, schema_message, watermark_message
from sink.messages.message_format import KeyedMessage, MessageFormat
from sink.receipt import CommitCounts, CopyEnd

_ALWAYS = Position(ClusterTime(0, 0))
_MARK = b"watermark"
_MOST_BEHIND = 1000
_ALL_SECONDS = 60.0
_PARTITIONS_A_SECOND = 1000

Made: TypeAlias = Mapping[str, int]
_NOTHING: Made = {}
_SENT = CommitCounts()


class OwnerSender:
    """Sends what is no row. Each call waits until it is acknowledged."""

    def __init__(self, topic: FeedTopic, *, in_band: bool) -> None:
        self.feed = topic.feed
        self.admin = TopicAdmin(topic.clients, topic.options)
        self.topics = Topics(topic.options)
        self._topic = topic
        self._options = topic.options
        self._in_band = in_band

    def make(self, names: Iterable[TableName], *, anew: bool = False, before: TableName | None = None) -> Made:
        """The topics of their rows, with their partitions. `anew`: the table begins again, so nothing is missed that was there before. `before`: the
        name that it had.

        A crash before their ids are said leaves topics without rows, which are taken as they are.
        """
        names = list(names)
        made = dict.fromkeys(map(self.topics.of, names), self._options.partitions)
        there = self.admin.create([AskedTopic.of_rows(topic, self._options) for topic in made])
        recorded = self._topic.ids() if made else {}
        told = self._own_tables(names, before) if self._options.compacts else {}
        ids = {topic: found.id for topic, found in self.admin.shown(made.keys()).items()}
        if len(ids) < len(made):
            raise SinkUnavailable(f"{self._options}: topics were created, and brokers do not show them yet")
        new = {topic: id for topic, id in ids.items() if recorded.get(topic) != id}
        for topic in new.keys() & recorded.keys() & there.keys():
            if not anew:
                raise SinkRefused(replaced(f"{self._options}", topic, recorded[topic], ids[topic]))
        if new:
            self._topic.say(topics=new)
        if told:
            self._topic.say(tables=told)
        return made

    def _own_tables(self, names: Iterable[TableName], before: TableName | None) -> dict[str, str]:
        """What is not said yet. Raises if a topic that is compacted has rows of another table: keys name none."""
        said, told = dict(self._topic.tables()), dict[str, str]()
        for name in names:
            topic = self.topics.of(name)
            has = said.get(topic)
            if has not in (None, str(name), str(before)):
                raise DdlRefused(
                    f"{self._options}: rows of {name} would go to the topic {topic}, which is compacted and has those of {has}, and keys name no "
                    f"table; rename the table at the source and have it {COPIED_AGAIN}, or create another changefeed with "
                    f"topics={name}:{{prefix}}.{{db}}.{{coll}}.2 or topic.cleanup.policy=delete"
                )
            if has != str(name):
                said[topic] = told[topic] = str(name)
        return told

    def say(self, message: KeyedMessage, names: Iterable[TableName], made: Made = _NOTHING) -> None:
        """In the topic of all DDL, and in-band in those of these tables, as far as they were just `made`, or exist."""
        self.say_all([(message, tuple(names))], made)

    def say_all(self, said: Sequence[tuple[KeyedMessage, Sequence[TableName]]], made: Made = _NOTHING) -> None:
        wanted = {self.topics.of(name) for _, names in said for name in names} - made.keys() if self._in_band else set()
        asked = self.admin.existing(sorted(wanted)) if wanted else {}
        there = {topic: found.partitions for topic, found in asked.items()} | (dict(made) if self._in_band else {})
        addressed: list[Addressed] = []
        for message, names in said:
            for topic in dict.fromkeys(map(self.topics.of, names)):
                addressed += ((topic, number, message) for number in range(there.get(topic, 0)))
            addressed.append((self.topics.ddl, 0, message))
        self.send(addressed)

    def send(self, messages: Iterable[Addressed]) -> None:
        with Sender(self._topic.clients, str(self._options), self._topic.permit) as sender:
            sender.send(messages)


class KafkaDdlApplier(DdlApplier):
    """Without a record, `apply` makes the views with which a changefeed starts, and prepares or completes a copy at another sink: here there is
    nothing to prepare.
    """

    def __init__(self, sender: OwnerSender, format: MessageFormat) -> None:
        self._sender = sender
        self._format = format

    def apply(self, ddl: DownstreamDdl, before: Observation, record: DdlRecord | None = None) -> str:  # noqa: ARG002 - nothing is compared
        if isinstance(ddl, Skip):
            return ddl.note
        if record is None:
            if isinstance(ddl, CreateTable) and ddl.id is not None and _is_view(ddl):
                view = TableSchema(
                    id=ddl.id, name=ddl.name, kind=TableKind.VIEW, options=ddl.options, valid_from=_ALWAYS
                )
                self.begin([(view, ddl.name)])
            return ""
        sender, made = self._sender, _NOTHING
        match ddl:
            case BeginAgain():
                made = sender.make([ddl.name], anew=True)
            case CreateTable() if not _is_view(ddl):
                made = sender.make([ddl.name])
            case RenameTable():
                made = sender.make([ddl.to], before=ddl.name)
        if (message := self._format.ddl(record, ddl)) is not None:
            sender.say(message, names_of(ddl), made)
        if isinstance(ddl, BeginAgain):
            self.begin([(ddl.schema, ddl.name)])
        return ""

    def begin(self, tables: Sequence[tuple[TableSchema, TableName]]) -> None:
        """They exist from here on, and their rows follow. `tables`: with their names downstream. May be repeated."""
        sender = self._sender
        made = sender.make(name for schema, name in tables if schema.kind is not TableKind.VIEW)
        messages = ((self._format.told(schema_message(sender.feed, schema, name)), (name,)) for schema, name in tables)
        if said := [(message, names) for message, names in messages if message is not None]:
            sender.say_all(said, made)

    def emptied(self, table: TableId, name: TableName, at: Position) -> None:
        """The table is empty from there, and is copied again."""
        self._tell(emptied_message(self._sender.feed, table, name, at), name)

    def copied(self, end: CopyEnd) -> None:
        self._tell(copy_end_message(self._sender.feed, end), end.name)

    def _tell(self, message: Message, name: TableName) -> None:
        if (told := self._format.told(message)) is not None:
            self._sender.say(told, [name])


class KafkaMarks:
    """For one owner's term. `mark` is called with rising positions."""

    def __init__(
        self,
        sender: OwnerSender,
        format: MessageFormat,
        partitions: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`partitions`: those of each topic of rows."""
        self._sender = sender
        self._format = format
        self._partitions = partitions
        self._monotonic = monotonic
        self._marked: dict[tuple[str, int], int] = {}
        """Where each partition ends if nothing has followed its last mark. A message that came between look and mark is followed by another mark."""
        self._next_at = 0.0
        self._next_all_at = 0.0

    def mark(
        self,
        at: Position,
        behind: Mapping[TableId, Position],
        tables: Iterable[TableName],
        committed: CommitCounts = _SENT,  # noqa: ARG002 - offsets have no holes that brokers do not tell of
    ) -> None:
        """`behind`: tables that are not as far, each with its own position. `tables`: the names downstream of all."""
        if len(behind) > _MOST_BEHIND:
            at, behind = min([at, *behind.values()]), {}
        message = self._format.told(watermark_message(self._sender.feed, at, behind))
        assert message is not None
        sender = self._sender
        if self._format.in_band and self._monotonic() >= self._next_at:
            self._in_band(sender, message, tables)
        sender.send([(sender.topics.watermark, 0, message._replace(key=_MARK))])

    def _in_band(self, sender: OwnerSender, message: KeyedMessage, tables: Iterable[TableName]) -> None:
        topics = dict.fromkeys(map(sender.topics.of, tables), self._partitions)
        now = self._monotonic()
        self._next_at = now + len(topics) * self._partitions / _PARTITIONS_A_SECOND
        ends = sender.admin.ends(topics)
        everywhere = now >= self._next_all_at
        due = [place for place, end in ends.items() if everywhere or end != self._marked.get(place)]
        sender.send((topic, number, message) for topic, number in due)
        sent = frozenset(due)
        self._marked = {place: end + 1 if place in sent else end for place, end in ends.items()}
        if everywhere:
            self._next_all_at = now + _ALL_SECONDS


def _is_view(ddl: CreateTable) -> bool:
    return "viewOn" in ddl.options.decode()
