"""`KafkaSink`: topics of Kafka as a sink. Its rows are messages, which are seen when they are written."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial

from changefeed.config.sinks.kafka_sink import KafkaSinkOptions
from changefeed.config.sinks.sink_traits import SINKS
from changefeed.errors import InvariantError
from changefeed.position import Position
from changefeed.records.status import LetterTotals
from changefeed.table import TableId, TableName
from credentials.secret_files import SecretFiles
from sink.kafka.brokers.clients import kafka_clients
from sink.kafka.brokers.sender import Sender
from sink.kafka.brokers.topic_admin import TopicAdmin
from sink.kafka.feed_claim import FeedClaim
from sink.kafka.kafka_obstacles import kafka_obstacles
from sink.kafka.owner_log import KafkaDdlApplier, KafkaMarks, OwnerSender
from sink.kafka.rows.large_rows import LargeRows
from sink.kafka.rows.row_writer import KafkaDocumentLoader, KafkaRowWriter, RowTopics
from sink.kafka.rows.topic_facts import TopicFacts
from sink.messages.files.directory import open_store
from sink.messages.formats import message_format
from sink.receipt import Committer
from sink.row import TargetTable
from sink.sink import NamedTables, Permit, TaskTerms


class KafkaSink:
    traits = SINKS["kafka"]
    commit_seconds: int | None = None
    whole_keys = False

    def __init__(self, feed: str, options: KafkaSinkOptions, files: SecretFiles | None) -> None:
        self._feed = feed
        self._options = options
        self._clients = partial(kafka_clients, options, files)
        self._admin = TopicAdmin(self._clients, options)
        self._format = message_format(feed, options.prefix, options.messages)
        self._claims = open_store(options.claims, files) if options.claims is not None else None

    def check(self) -> None:
        self._admin.check()
        if self._claims is not None:
            self._claims.check()

    def obstacles(self, tables: Collection[TableName]) -> Iterator[str]:
        return kafka_obstacles(self._options, self._clients, tables)

    def claim(self, life: str, at: Position, tables: NamedTables, permit: Permit) -> None:
        if self._claims is not None:
            self._claims.check()
        self._claim(life).claim(self._clients, permit)
        self.ddl(life, permit).begin(tables)
        self._claim(life).begin(self._clients, permit, at)

    def confirm(self, life: str) -> None:
        self._claim(life).confirm(self._clients)

    def ddl(self, life: str, permit: Permit) -> KafkaDdlApplier:  # noqa: ARG002 - the topics were claimed
        return KafkaDdlApplier(self._sender(permit), self._format)

    copy_log = ddl

    def marks(self, life: str, permit: Permit) -> KafkaMarks:  # noqa: ARG002 - as above
        return KafkaMarks(self._sender(permit), self._format, self._options.partitions)

    def leftovers(self, life: str) -> None:
        """What is in a topic counts."""

    def open_letters(self, before: LetterTotals) -> LetterTotals:  # noqa: ARG002 - large rows apart, it refuses none
        return LetterTotals()

    def forget_letters(self, table: TableId, permit: Permit) -> None:
        """As above."""

    def principals(self, permit: Permit) -> None:
        """It has no users of the source."""

    def writer(self, task: TaskTerms) -> KafkaRowWriter:
        """Without the epoch: what a zombie sends is a repeat."""
        place = str(self._options)
        facts = TopicFacts(self._admin, place, self._options.partitions)
        large = LargeRows(self._options.large, self._claims, facts, place)
        sender = Sender(self._clients, place, task.permit)
        return KafkaRowWriter(self._format, RowTopics(self._options), facts, large, sender)

    def loader(self, table: TargetTable, task: TaskTerms, *, once: bool, shared: bool = False) -> KafkaDocumentLoader:  # noqa: ARG002 - a repeat does no harm
        return KafkaDocumentLoader(self.writer(task), self._format, RowTopics(self._options), table)

    def committer(self, life: str, epoch: int) -> Committer:
        raise InvariantError(
            f"{self._options}: epoch {epoch} of {life} wants to commit, and rows in Kafka need no commit"
        )

    def _claim(self, life: str) -> FeedClaim:
        return FeedClaim(feed=self._feed, life=life, options=self._options)

    def _sender(self, permit: Permit) -> OwnerSender:
        return OwnerSender(self._clients, self._options, permit, in_band=self._format.in_band)
