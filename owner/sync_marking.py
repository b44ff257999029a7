"""`SyncMarking`: carries out what `decision/sync_hold.py` decides: writes the target's marks and records, and the points into etcd."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import structlog

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.position import Position
from changefeed.records.requests import ChangefeedId
from changefeed.records.status import ChangefeedStatus
from changefeed.records.sync_point import SyncPoint, SyncPoints
from coordination import failpoint
from owner.background import Background, Chore, logged
from owner.connections import Compare
from owner.continuous_check import ContinuousCheck
from owner.decision.state import published
from owner.decision.sync_hold import (
    MOST_EXCEPTED,
    ONE_SECOND,
    Course,
    MarkTarget,
    MissPoint,
    SyncHold,
    TablesThere,
    excepted_too,
    names_at,
    place_of,
)
from owner.etcd_view import OwnerView
from owner.etcd_writes import ChangefeedWriter
from owner.owner_memory import OwnerMemory
from sink.sink import Marked, Sink

_RECORD_SECONDS = 1.0
_NOTES_FOR = timedelta(seconds=5)
"""How long after a point's time an idle source is asked to move on. By this node's clock, on which nothing but the delay depends."""

_log = structlog.get_logger()


class SyncMarking:
    """For the owner's thread, and one term of one changefeed. Never waits for the target."""

    def __init__(
        self,
        id: ChangefeedId,
        configuration: Configuration,
        sink: Sink,
        background: Background,
        writer: ChangefeedWriter,
        compare: Compare | None = None,
    ) -> None:
        self._log = _log.bind(changefeed=id)
        self._options = configuration.sync_points
        self._delay = timedelta(0)
        """May change at each look."""
        self._route = configuration.routes.target
        self._target = sink.sync_target() if self._options is not None else None
        self._background = background
        self._writer = writer
        self._hold = SyncHold()
        self._resolved: Position | None = None
        self._run = 0
        self._run_seen_at: datetime | None = None
        self._settled_ts: ClusterTime | None = None
        self._recorded: ClusterTime | None = None
        """The newest point whose record this owner has written in the target."""
        failed = logged(self._log.warning, "sync_point_not_written")
        self._mark = Chore[tuple[MarkTarget, Marked]](background, "sync point", 0.0, failed)
        self._record = Chore[SyncPoint](background, "sync point's record", _RECORD_SECONDS, failed)
        self._check: ContinuousCheck | None = None
        if self._target is not None and compare is not None:
            self._check = ContinuousCheck(id, self._target, compare, background, writer)

    def close(self) -> None:
        if self._check is not None:
            self._check.close()
        if self._target is not None:
            self._target.close()

    def aim(
        self, known: OwnerView, status: ChangefeedStatus, memory: OwnerMemory, resolved: Position
    ) -> Position | None:
        """Return where the barrier stops for the next point. None: nowhere. `resolved`: up to where the source is known."""
        if self._target is None or self._options is None:
            return None
        self._resolved, delay = resolved, known.info.configuration.delay
        self._delay = delay.span if delay is not None else timedelta(0)
        course = self._course(known, status, memory, resolved)
        passed = known.sync.newest.source if known.sync.newest is not None else None
        self._hold = self._hold.after(passed).aimed(
            ONE_SECOND if known.sync_asked else self._options.every.span, course
        )
        return self._hold.place

    @property
    def wants_note(self) -> bool:
        """Whether the source is idle, so that nothing tells that a point's time is over."""
        ts, place = self._hold.ts, self._hold.place
        if ts is None or place is None or self._resolved is None or self._resolved >= place or self._delay:
            return False
        return ts.to_datetime() <= datetime.now(UTC) < ts.to_datetime() + _NOTES_FOR

    def tick(self, known: OwnerView, status: ChangefeedStatus, memory: OwnerMemory) -> None:
        """After the barrier was decided. May write etcd."""
        target = self._target
        if target is None or self._options is None:
            return
        newest, keep = known.sync.newest, self._options.keep.span
        if newest is not None and newest.source != self._recorded:

            def record() -> SyncPoint:
                target.record(newest, keep)
                return newest

            if self._record.tick(record) and self._record.answer is not None:
                self._recorded = self._record.answer.source
                failpoint.reach("sync_point_recorded")
            return
        if self._check is not None and newest is not None:
            self._check.tick(known, newest)
        now = self._background.now()
        self._hold, step = self._hold.look(
            published(status, known.barrier),
            lambda place: self._tables_there(place, known, memory),
            now,
        )
        if isinstance(step, MissPoint):
            self._missed(step, known, now)
            return
        mark = self._hold.mark

        def write() -> tuple[MarkTarget, Marked]:
            assert mark is not None, "expected to be asked for a mark"
            return mark, target.mark(mark.ts)

        if self._mark.tick(write, wanted=mark is not None) and self._mark.answer is not None:
            answered, marked = self._mark.answer
            failpoint.reach("sync_point_marked")
            if answered is self._hold.mark:
                self._made(answered, marked, known, memory, now)

    def _course(
        self, known: OwnerView, status: ChangefeedStatus, memory: OwnerMemory, resolved: Position
    ) -> Course | None:
        newest = known.sync.newest
        if status.run != self._run or not status.lifecycle.running:
            self._hold, self._run = SyncHold(passed=self._hold.passed), status.run
            self._run_seen_at, self._settled_ts = datetime.now(UTC), None
        if not status.lifecycle.running or (newest is not None and newest.source != self._recorded):
            return None
        latest = memory.sightings.latest
        if self._settled_ts is None and latest is not None and self._run_seen_at and latest.at > self._run_seen_at:
            self._settled_ts = latest.end.ts
        place = published(status, known.barrier)
        reports = (report for node, report in known.reports.items() if node in known.assignments)
        return Course(
            published=place,
            newest=Position(resolved.ts.earlier_by(self._delay), resolved.token),
            furthest=max((report.checkpoint for report in reports), default=place),
            settled_ts=self._settled_ts,
        )

    def _tables_there(self, place: Position, known: OwnerView, memory: OwnerMemory) -> TablesThere:
        tables = memory.tables
        assert tables is not None, "expected a memory that follows etcd"
        aside = dict.fromkeys(tables.in_copy(known.copied), "it is being copied")
        aside |= dict.fromkeys(known.stragglers, "it is stopped, or behind")
        ddls = (record for record in known.records.values() if record.open and not record.background)
        return TablesThere(
            elsewhere=memory.progress.elsewhere(place, MOST_EXCEPTED),
            aside=aside,
            name_of=names_at(place, tables.tip, self._route),
            open_ddls=tuple(record for record in ddls if record.position < place),
        )

    def _made(self, mark: MarkTarget, marked: Marked, known: OwnerView, memory: OwnerMemory, now: float) -> None:
        """The state in etcd is of this term, and the barrier there has not passed the point: this owner alone moves it."""
        assert memory.tables is not None, "expected a memory that follows etcd"
        reasons = dict.fromkeys(marked.refused, "it has dead letters") | dict.fromkeys(
            marked.newer, "it has newer rows"
        )
        names = names_at(place_of(mark.ts), memory.tables.tip, self._route)
        excepted = excepted_too(mark.excepted, reasons, names)
        point = SyncPoint(source=mark.ts, target=marked.target_ts, excepted=excepted, made_at=datetime.now(UTC))
        before = known.sync
        points = replace(before, newest=point, made=before.made + 1, whole=before.whole + (not excepted))
        self._end_hold(points, known, now)
        self._log.info("sync_point", source=str(point.source), target=str(point.target), excepted=len(excepted))

    def _missed(self, missed: MissPoint, known: OwnerView, now: float) -> None:
        points = replace(known.sync, missed=known.sync.missed + 1, missed_because=missed.why)
        self._end_hold(points, known, now)
        self._log.info("sync_point_missed", source=str(missed.ts), why=missed.why)

    def _end_hold(self, points: SyncPoints, known: OwnerView, now: float) -> None:
        points = replace(points, held_seconds=points.held_seconds + self._hold.held(now))
        self._writer.sync(points, answers=known.sync_asked)
        self._hold = self._hold.over()
        self._background.wake()
