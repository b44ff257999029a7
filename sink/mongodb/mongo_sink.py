"""`MongoSink`: a MongoDB as a sink. Its tables keep documents, which can be read, compared, cleared and repaired."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import cached_property

from changefeed.config.configuration import Configuration, OnDivergence, OnOccupied, OnRejected
from changefeed.config.uri import ConnectionUri
from changefeed.errors import InvariantError
from changefeed.records.status import LetterTotals
from changefeed.table import TableId
from credentials.clients import Closable, Renewed
from credentials.secret_files import SecretFiles
from credentials.secrets import expanded
from sink.mongodb.connection import Client, connect, is_sharded
from sink.mongodb.ddl.ddl_applier import MongoDdlApplier
from sink.mongodb.letters.open_letters import LetterBox
from sink.mongodb.letters.stored_letters import StoredLetters
from sink.mongodb.principals import TargetPrincipals
from sink.mongodb.rows.document_loader import MongoDocumentLoader
from sink.mongodb.rows.row_writer import MongoRowWriter, RowWriterOptions
from sink.mongodb.sync_marks import SyncMarks
from sink.row import TargetTable
from sink.sink import Permit, Sink, SourceFacts, TaskTerms

_RETRY_FOR = timedelta(seconds=30)
"""A slow sink needs most of it for one large batch."""
_PATIENCE = timedelta(seconds=3)
"""A target that is unreachable for longer is an error of the changefeed, which tries again. A task that waits longer would keep a core
from the tasks of other changefeeds, whose targets answer."""


def renewed_client(uri: ConnectionUri, files: SecretFiles | None) -> Renewed[Closable]:
    return Renewed[Closable](uri, connect, files)


class MongoSink(Sink):
    """What it does without `client` is connected with the credentials of that moment. Several changefeeds may write to one MongoDB, so nobody claims it.

    What is in the way of a changefeed is found with its user's privileges, by the checks before a start.
    """

    def __init__(
        self, configuration: Configuration, source: SourceFacts | None, client: Client | None, permit: Permit
    ) -> None:
        """`client` stays open, and is not closed here."""
        self._configuration = configuration
        self._permit = permit
        self._source = source
        self._client = client

    @cached_property
    def whole_keys(self) -> bool:
        """A router finds rows by their whole keys."""
        with self._connected() as client:
            return is_sharded(client)

    def check(self) -> None:
        with self._connected() as client:
            is_sharded(client)

    def ddl(self) -> MongoDdlApplier:
        source = self._source
        return MongoDdlApplier(
            self._client if self._client is not None else self._renewed(),
            permit=self._permit,
            ttl=self._configuration.ddl.ttl,
            source_release=source.release if source is not None else None,
            layout_of=source.layout_of if source is not None and self._configuration.shard_target else None,
        )

    def open_letters(self, before: LetterTotals) -> LetterTotals:
        if self._configuration.dead_letter is None:
            return LetterTotals()
        box = LetterBox(collection=self._configuration.dead_letter, changefeed=self._configuration.id)
        with self._connected() as client:
            return StoredLetters(client, box).open(before)

    def forget_letters(self, table: TableId) -> None:
        if (box := self._letter_box) is not None:
            with self._connected() as client:
                StoredLetters(client, box).forget(table, self._permit)

    def principals(self) -> TargetPrincipals:
        return TargetPrincipals(self._connected, self._permit)

    def sync_target(self) -> SyncMarks:
        """Connected once, since a point is to be short, and again when the credentials change."""
        configuration = self._configuration
        return SyncMarks(self._renewed(), configuration.id, configuration.dead_letter, self._permit)

    def writer(self, task: TaskTerms) -> MongoRowWriter:
        return MongoRowWriter(
            self._kept_client(),
            permit=self._permit,
            turns=task.turns,
            options=self._writer_options(task),
            fetch=task.fetch,
            repairs=self._configuration.on_divergence is OnDivergence.REPAIR,
        )

    def loader(self, table: TargetTable, task: TaskTerms, *, once: bool, shared: bool = False) -> MongoDocumentLoader:
        return MongoDocumentLoader(
            self._kept_client(),
            table=table,
            once=once,
            kept=shared or self._configuration.on_occupied is OnOccupied.KEEP,
            permit=self._permit,
            options=self._writer_options(task),
        )

    def _renewed(self) -> Renewed[Client]:
        return Renewed(self._configuration.sink, connect)

    def _kept_client(self) -> Client:
        if self._client is None:
            raise InvariantError(
                f"{self._configuration.sink}: rows are written by a client that its process keeps open"
            )
        return self._client

    @contextmanager
    def _connected(self) -> Iterator[Client]:
        if self._client is not None:
            yield self._client
            return
        with closing(connect(expanded(self._configuration.sink))) as client:
            yield client

    @property
    def _letter_box(self) -> LetterBox | None:
        """Of new letters. None: refused rows are not kept there."""
        name, configuration = self._configuration.dead_letter, self._configuration
        if name is None or configuration.when_rejected is not OnRejected.DEAD_LETTER:
            return None
        return LetterBox(collection=name, changefeed=configuration.id)

    def _writer_options(self, task: TaskTerms) -> RowWriterOptions:
        return RowWriterOptions(
            retry_for=_RETRY_FOR,
            patience=_PATIENCE,
            letters=self._letter_box,
            compared=self._configuration.id if self._configuration.sync_points is not None else None,
            several_shards=task.several_shards,
        )
