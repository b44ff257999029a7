"""`MongoRowWriter`: writes row changes into MongoDB with few bulk commands, each durable on a majority."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sink.asked_rows import RowRepairs
from sink.mongodb.commander import Commander
from sink.mongodb.connection import Client
from sink.mongodb.letters.open_letters import LetterBox, OpenLetters
from sink.mongodb.rows.batch_sender import SideBySide
from sink.mongodb.rows.bulk_plan import CommandSizes, Limits
from sink.mongodb.rows.doubts import RunTables
from sink.mongodb.rows.placing import Placing, by_id_alone
from sink.mongodb.rows.row_look import RowsAtSource
from sink.mongodb.rows.rows_ahead import RowsAhead
from sink.mongodb.rows.write_run import TargetLink, WriteRun
from sink.row import AskedRows, FetchRow, RowChange, Sole, TargetTable, Turns, Unfinished, WriteResult
from sink.sink import Permit


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWriterOptions:
    retry_for: timedelta = timedelta(seconds=60)
    patience: timedelta = timedelta(seconds=60)
    letters: LetterBox | None = None
    compared: str | None = None
    """The changefeed, if its sync points say when both sides are equal."""
    several_shards: bool = False
    """Whether the source has shards, of which two may have a document of one `_id`."""


@dataclass(slots=True)
class KnownLimits:
    """The target is asked once."""

    commander: Commander
    _limits: Limits | None = None

    def __call__(self) -> Limits:
        if self._limits is None:
            self.commander.begin()
            hello = self.commander.send("admin", {"hello": 1}, "hello").document
            self._limits = Limits.of(hello)
        return self._limits


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
        self._options = options = options or RowWriterOptions()
        self._permit = permit
        self._source = RowsAtSource(
            fetch=None if fetch is None else by_id_alone(fetch), repairs=repairs, several_shards=options.several_shards
        )
        commander = self._new_commander()
        self._target = TargetLink(
            commander=commander,
            limits=KnownLimits(commander),
            sizes=CommandSizes(),
            side_by_side=SideBySide(),
            ahead=RowsAhead(options.compared),
            turns=turns,
        )

    def begin(self, unfinished: Unfinished, sole: Sole | None = None, asked: Sequence[AskedRows] = ()) -> WriteRun:
        options, source = self._options, self._source
        letters = None
        if options.letters is not None:
            letters = OpenLetters(self._target.commander, options.letters, source.fetch, notes=not source.repairs)
        repairs = RowRepairs(asked, source.fetch) if asked else None
        tables = RunTables(unfinished=unfinished, sole=sole)
        return WriteRun(self._target, self._placing(), source, tables, letters, repairs)

    def write(self, changes: Sequence[RowChange], *, replay: bool) -> WriteResult:
        """Writes the changes in a run of their own; the target is not ahead of their end."""
        run = self.begin(lambda _: False)
        result = run.prepare(changes, replay=replay)()
        result.add(run.settle())
        return result

    def shards(self, table: TargetTable) -> bool:
        """Whether the target has the table on several shards."""
        return self._placing().spreads(table)

    def close(self) -> None:
        """`client` stays open."""
        self._target.side_by_side.close()

    def _placing(self) -> Placing:
        return Placing(self._target.commander, self._new_commander(), self._target.limits, self._source)

    def _new_commander(self) -> Commander:
        options = self._options
        return Commander(self._client, permit=self._permit, retry_for=options.retry_for, patience=options.patience)
