"""`SourceChores`, `SinkChores`, `PrincipalCopy`: what an owner has done at a changefeed's source and sink now and then. Replication waits for none of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import TypeAlias

import structlog

from changefeed.cluster_time import ClusterTime
from changefeed.errors import RetryableError, SluiceError, UsersNotReplicated
from changefeed.position import Position
from changefeed.records.node import PositionReport
from changefeed.records.requests import ChangefeedId
from changefeed.records.status import LetterTotals
from changefeed.table import TableId, TableName
from changefeed.users import PrincipalChanges, PrincipalNames, Principals
from owner.background import Background, Chore, logged
from owner.connections import SourceConnection
from sink.ddl import DropTables
from sink.receipt import CommitCounts
from sink.sink import PrincipalTarget, Sink

_HEARTBEAT_SECONDS = 10.0
_NOTE_SECONDS = 1.0
"""Two notes are then never of the same second. In one second, a note gives one place, and a table that is copied anew needs two."""
_MARK_SECONDS = 1.0
_SWEEP_SECONDS = 600.0
_LETTERS_SECONDS = 5.0
_DROP_PATIENCE_SECONDS = 30.0
_PRINCIPALS_SECONDS = 10.0
MOST_PRINCIPALS = 10_000
"""Users and roles: their names are one value in etcd."""

_Mark: TypeAlias = tuple[Position, Mapping[TableId, Position]]

_log = structlog.get_logger()


class SourceChores:
    """`heartbeat`: the name of the changefeed's heartbeat. A changefeed that may not write heartbeats goes on without them."""

    def __init__(self, id: ChangefeedId, heartbeat: str, source: SourceConnection, background: Background) -> None:
        self._heartbeat = heartbeat
        self._source = source
        self._background = background
        self._log = _log.bind(changefeed=id)
        self._may_beat = True
        self._beat = Chore[ClusterTime | None](background, "heartbeat", _HEARTBEAT_SECONDS, self._not_written)
        self._note = Chore[None](background, "note", _NOTE_SECONDS, logged(self._log.info, "note_not_written"))

    def beat(self, checkpoint: Position) -> None:
        """Write the heartbeat of a changefeed that reads change streams."""
        last_ts = self._beat.answer
        self._beat.tick(
            lambda: self._source.beat(self._heartbeat, checkpoint=checkpoint, last_ts=last_ts), wanted=self._may_beat
        )

    def _not_written(self, error: SluiceError) -> None:
        if isinstance(error, RetryableError):
            self._log.info("heartbeat_not_written", error=str(error))
        else:
            self._may_beat = False
            self._log.warning("heartbeat_refused", error=str(error))

    def heartbeat_ended(self) -> bool:
        """Whether the heartbeat is removed, or cannot be removed. A failure does not delay the changefeed's removal."""

        def end() -> bool:
            self._source.end_heartbeats(self._heartbeat)
            return True

        try:
            return self._background.take("end of heartbeats", end) is not None
        except SluiceError as error:
            self._log.info("heartbeat_left", error=str(error))
            return True

    def note(self, *, wanted: bool) -> None:
        """Have an idle source write a note, so that a DDL of Sluice's own gets a place.

            barrier 100.7, nothing newer at the source     no place: the DDL waits
            note @103.1                                    resolved 103.2: 100.8 and later are places

        Where Sluice may not write notes, the source's own no-op does the same, ten seconds later at most.
        """
        self._note.tick(self._source.move_on, wanted=wanted)


class SinkChores:
    """For one owner's term of one changefeed."""

    def __init__(self, id: ChangefeedId, sink: Sink, background: Background) -> None:
        self._sink = sink
        self._background = background
        self._log = _log.bind(changefeed=id)
        self._marks = sink.marks()
        self._sweeper = sink.leftovers()
        self._mark = Chore[_Mark](
            background, "watermark", _MARK_SECONDS, logged(self._log.warning, "watermark_not_written")
        )
        self._ended = Chore[int](
            background, "logs of gone nodes", _MARK_SECONDS, logged(self._log.warning, "logs_not_ended")
        )
        self._counts: dict[int, int] = {}
        """Of the commits that nodes have reported, by their epochs."""
        self._sweep = Chore[int](
            background, "leftovers", _SWEEP_SECONDS, logged(self._log.warning, "leftovers_not_removed")
        )
        self._letters = Chore[tuple[int, LetterTotals]](
            background, "letters", _LETTERS_SECONDS, logged(self._log.info, "letters_not_counted")
        )
        self._give_up_deadline: float | None = None

    def mark(
        self,
        checkpoint: Position,
        behind: Mapping[TableId, Position],
        tables: Callable[[], Iterable[TableName]],
        reports: Iterable[PositionReport] = (),
    ) -> None:
        """Tell a sink of messages how far everything is there. `checkpoint` and `behind` are as etcd has them, so a mark is true for ever.

        `tables`: the names downstream of all, as of now. It is called in another thread. `reports`: as etcd has them now. Commits of
        a node that is gone were reported before, or are ended before the first mark.
        """
        marks, mark = self._marks, (checkpoint, dict(behind))
        for epoch, count in (each for report in reports for each in report.committed.items()):
            self._counts[epoch] = max(count, self._counts.get(epoch, 0))
        if marks is None or (self._sweeper is not None and self._ended.answer is None):
            return
        committed = CommitCounts(counts=dict(self._counts), ended=self._ended.answer or 0)

        def write() -> _Mark:
            marks.mark(*mark, tables(), committed)
            return mark

        self._mark.tick(write, wanted=mark != self._mark.answer)

    def sweep(self, gone: Callable[[int], bool]) -> None:
        """Have a sink of messages cleared of what gone nodes wrote and never committed. `gone`: whether the node of this epoch is."""
        sweeper = self._sweeper
        if sweeper is not None and self._ended.answer is None:
            self._ended.tick(lambda: sweeper.end(gone))
        elif sweeper is not None and self._sweep.tick(lambda: sweeper.sweep(gone)) and self._sweep.answer:
            self._log.info("leftovers_removed", files=self._sweep.answer)

    def letters(self, recorded: LetterTotals, rejected: int) -> LetterTotals | None:
        """Return how many rows the target refuses, for users. None until it is known.

        They are counted at the start of an owner's term, when a pipeline reports a refusal, and every few seconds while there are any: they
        end by themselves, or when a user drops them. `recorded`: the totals in etcd, which may be another owner's. `rejected`: the refusals
        that pipelines have reported.
        """
        counted_at, before = self._letters.answer or (None, recorded)
        due = counted_at != rejected or before.count > 0
        self._letters.tick(lambda: (rejected, self._sink.open_letters(before)), wanted=due)
        return self._letters.answer and self._letters.answer[1]

    def dropped(self, names: Sequence[TableName]) -> bool:
        """Drop tables of the target. Return whether they are gone, or cannot be dropped: a target that does not answer may not keep a changefeed
        from being removed. A crash after the drop finds nothing to drop.
        """
        if not names:
            return True
        if self._give_up_deadline is None:
            self._give_up_deadline = self._background.now() + _DROP_PATIENCE_SECONDS
        try:
            ended = self._background.take(("tables to drop", *names), lambda: self._drop(names)) is not None
        except SluiceError as error:
            ended = self._background.now() >= self._give_up_deadline
            if ended:
                self._log.warning("unfinished_copies_left", tables=", ".join(map(str, names)), error=str(error))
        if ended:
            self._give_up_deadline = None
        return ended

    def _drop(self, names: Sequence[TableName]) -> bool:
        drop = DropTables(names=tuple(names))
        with closing(self._sink.ddl()) as sink:
            sink.apply(drop, sink.observe(drop.names))
        return True


class PrincipalCopy:
    """Keeps the target's users and roles as the source's are, for a changefeed with `users: true`.

    Both sides are looked at every ten seconds. What is to be written is recorded first, then looked at again, then written: a new owner goes
    on from the record. Two owners at once can only do the same; what an old one wrote of an older state, the new one's next look sees.

    Never waits. `read_source` and the target's methods do, in threads.
    """

    def __init__(
        self, changefeed: str, background: Background, read_source: Callable[[], Principals], target: PrincipalTarget
    ) -> None:
        self._read_source = read_source
        self._target = target
        self._log = _log.bind(changefeed=changefeed)
        self._look = Chore[PrincipalChanges](background, "principals", _PRINCIPALS_SECONDS, self._failed)
        self._write = Chore[None](background, "principals written", 0.0, self._failed)
        self._to_write: PrincipalChanges | None = None
        self.error: UsersNotReplicated | None = None

    def tick(self, written: PrincipalNames) -> PrincipalNames | None:
        """`written`: as it is recorded. Return what is to be recorded instead, before the next tick."""
        if self._to_write is not None:
            self._go_on_writing(self._to_write)
            return None
        if not self._look.tick(lambda: self._difference(written)) or self._look.answer is None:
            return None
        changes = self._look.answer
        if changes.written != written:
            self._look.hurry()
            return changes.written
        if changes.any:
            self._to_write = changes
        else:
            self.error = None
        return None

    def _failed(self, error: SluiceError) -> None:
        self.error = UsersNotReplicated(f"users and roles: {error}; tables are replicated without them")
        self._to_write = None
        self._log.warning("principals_not_copied", error=str(error))

    def _difference(self, written: PrincipalNames) -> PrincipalChanges:
        source = self._read_source()
        if source.names.count > MOST_PRINCIPALS:
            raise UsersNotReplicated(
                f"the source has {source.names.count}, and at most {MOST_PRINCIPALS} are replicated; set users: false"
            )
        target = self._target.read(frozenset(source.roles.keys() | written.roles))
        return PrincipalChanges.between(source, target, written)

    def _go_on_writing(self, changes: PrincipalChanges) -> None:
        if self._write.tick(lambda: self._target.apply(changes)):
            self._to_write = None
            self._look.hurry()
            self._log.info(
                "principals_copied", users=len(changes.users), roles=len(changes.roles), dropped=changes.dropped.count
            )
