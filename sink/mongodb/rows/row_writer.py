"""`MongoRowWriter`: writes row changes into MongoDB with few bulk commands, each durable on a majority."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from operator import attrgetter

from changefeed.table import TableName
from sink.mongodb.commander import Commander, Permit
from sink.mongodb.connection import Client
from sink.mongodb.rows.bulk_command import command_of
from sink.mongodb.rows.bulk_plan import Batch, Limits, plan, upserted
from sink.mongodb.rows.write_run import WriteRun
from sink.row import FetchRow, RowChange, Unfinished, Write, WriteResult

_BULK_WRITE_WIRE_VERSION = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWriterOptions:
    retry_for: timedelta = timedelta(seconds=60)
    patience: timedelta = timedelta(seconds=60)
    dead_letter: TableName | None = None


class MongoRowWriter:
    """`fetch` reads a row at the source, to compare a divergent row and, unless `repairs` is off, to repair it.

    `permit` returns how long this process may still write.
    """

    def __init__(
        self,
        client: Client,
        *,
        permit: Permit,
        options: RowWriterOptions | None = None,
        fetch: FetchRow | None = None,
        repairs: bool = True,
    ) -> None:
        self._client = client
        self._options = options or RowWriterOptions()
        self._fetch = fetch
        self._repairs = repairs
        self._commander = Commander(
            client, permit=permit, retry_for=self._options.retry_for, patience=self._options.patience
        )
        self._limits: Limits | None = None

    def begin(self, unfinished: Unfinished) -> MongoRowRun:
        run = WriteRun(self._commander, self._fetch, self._options.dead_letter, unfinished, repairs=self._repairs)
        return MongoRowRun(self._commander, run, self._known_limits)

    def write(self, changes: Sequence[RowChange], *, replay: bool) -> WriteResult:
        """Writes the changes in a run of their own; the target is not ahead of their end."""
        run = self.begin(lambda _: False)
        result = run.prepare(changes, replay=replay)()
        result.add(run.settle())
        return result

    def close(self) -> None:
        self._client.close()

    def _known_limits(self) -> Limits:
        if self._limits is None:
            hello = self._commander.send("admin", {"hello": 1}, "hello").document
            self._limits = Limits(
                joined=hello["maxWireVersion"] >= _BULK_WRITE_WIRE_VERSION,
                changes=hello["maxWriteBatchSize"],
                bytes=hello["maxBsonObjectSize"],
            )
        return self._limits


class MongoRowRun:
    def __init__(self, commander: Commander, run: WriteRun, limits: Callable[[], Limits]) -> None:
        self._commander = commander
        self._run = run
        self._limits = limits

    def prepare(self, changes: Sequence[RowChange], *, replay: bool) -> Write:
        batches = [
            batch.ready(command_of(batch)) for batch in plan(upserted(changes) if replay else changes, self._limits())
        ]
        return partial(self._write, changes, batches, replay=replay)

    def _write(self, changes: Sequence[RowChange], batches: Sequence[Batch], *, replay: bool) -> WriteResult:
        self._begin(replay=replay)
        run = self._run
        for batch in batches:
            run.apply(batch)
        run.explain(changes)
        run.bound()
        run.result.applied.update(map(attrgetter("type"), changes))
        run.result.bytes = sum(change.size for change in changes)
        return self._ended()

    def settle(self) -> WriteResult:
        self._begin(replay=False)
        self._run.settle()
        return self._ended()

    def _begin(self, *, replay: bool) -> None:
        self._commander.begin()
        self._run.begin(replay=replay)

    def _ended(self) -> WriteResult:
        result = self._run.result
        for deviation in result.rejected:
            result.applied[deviation.change.type] -= 1
        result.retries = self._commander.retries
        return result
