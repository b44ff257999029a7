"""`MongoRowWriter`: writes row changes into MongoDB with few bulk commands, each durable on a majority."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from changefeed.event import RowType
from sink.asked_rows import RowRepairs
from sink.mongodb.commander import Commander, Permit
from sink.mongodb.connection import Client
from sink.mongodb.letters.open_letters import LetterBox, OpenLetters
from sink.mongodb.rows.batch_sender import SideBySide
from sink.mongodb.rows.bulk_plan import CommandSizes, Limits
from sink.mongodb.rows.placing import ShardKeys
from sink.mongodb.rows.row_place import id_alone
from sink.mongodb.rows.write_run import WriteRun
from sink.row import AskedRows, FetchRow, RowChange, Sole, SourceRow, TargetTable, Turns, Unfinished, WriteResult

_BULK_WRITE_WIRE_VERSION = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWriterOptions:
    retry_for: timedelta = timedelta(seconds=60)
    patience: timedelta = timedelta(seconds=60)
    letters: LetterBox | None = None
    several_shards: bool = False
    """Whether the source has shards, of which two may have a document of one `_id`."""


class MongoRowWriter:
    """`fetch` reads a row at the source, to write a row that has a dead letter, to compare a divergent row and, unless `repairs` is off, to
    repair it.

    `permit` returns how long this process may still write. `turns` leaves the target to others, after each command with rows.
    """

    def __init__(
        self,
        client: Client,
        *,
        permit: Permit,
        turns: Turns | None = None,
        options: RowWriterOptions | None = None,
        fetch: FetchRow | None = None,
        repairs: bool = True,
    ) -> None:
        self._client = client
        self._options = options or RowWriterOptions()
        self._fetch = None if fetch is None else by_id_alone(fetch)
        self._repairs = repairs
        self._turns = turns
        self._permit = permit
        self._commander = self._new_commander()
        self._limits: Limits | None = None
        self._sizes = CommandSizes()
        self._side_by_side = SideBySide()

    def begin(self, unfinished: Unfinished, sole: Sole | None = None, asked: Sequence[AskedRows] = ()) -> WriteRun:
        box = self._options.letters
        return WriteRun(
            self._commander,
            self._fetch,
            OpenLetters(self._commander, box, self._fetch, notes=not self._repairs) if box is not None else None,
            unfinished,
            sole,
            RowRepairs(asked, self._fetch) if asked else None,
            turns=self._turns,
            limits=self._known_limits,
            shard_keys=ShardKeys(self._new_commander()),
            sizes=self._sizes,
            side_by_side=self._side_by_side,
            repairs=self._repairs,
            several_shards=self._options.several_shards,
        )

    def write(self, changes: Sequence[RowChange], *, replay: bool) -> WriteResult:
        """Writes the changes in a run of their own; the target is not ahead of their end."""
        run = self.begin(lambda _: False)
        result = run.prepare(changes, replay=replay)()
        result.add(run.settle())
        return result

    def shards(self, table: TargetTable) -> bool:
        """Whether the target has the table on several shards."""
        if not self._known_limits().router:
            return False
        change = RowChange(table, RowType.DELETE, b"", None, None, 0, b"")
        return bool(ShardKeys(self._new_commander()).known([change])[0].table.shard_key)

    def close(self) -> None:
        self._client.close()

    def _new_commander(self) -> Commander:
        options = self._options
        return Commander(self._client, permit=self._permit, retry_for=options.retry_for, patience=options.patience)

    def _known_limits(self) -> Limits:
        if self._limits is None:
            self._commander.begin()
            hello = self._commander.send("admin", {"hello": 1}, "hello").document
            router = hello.get("msg") == "isdbgrid"
            self._limits = Limits(
                joined=hello["maxWireVersion"] >= _BULK_WRITE_WIRE_VERSION and not router,
                router=router,
                defers="setName" in hello,
                changes=hello["maxWriteBatchSize"],
                bytes=hello["maxBsonObjectSize"],
            )
        return self._limits


def by_id_alone(fetch: FetchRow) -> FetchRow:
    """The source knows nothing of the shard key that the target has."""

    def fetched(change: RowChange) -> SourceRow | None:
        return fetch(change._replace(key=id_alone(change.key)) if change.table.shard_key else change)

    return fetched
