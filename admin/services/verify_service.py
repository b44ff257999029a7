"""`VerifyService`: compares the source and the target of a changefeed, with this node's credentials."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from admin.access import Access, Guard
from admin.cluster_reader import ClusterReader, follows
from admin.desired.desired_store import DesiredStore
from admin.services import sync_points
from admin.services.changefeed_messages import alike
from admin.services.point_repair import PointRepair, compared_again
from admin.services.rpc import AdmittedCall, admits
from admin.services.verified_changefeed import EtcdCheckpoints, RepairRequests, at_point, known_tables
from admin.stubs.sluice.admin.v1 import verify_pb2 as pb
from admin.stubs.sluice.admin.v1.verify_pb2_grpc import VerifyServiceServicer
from changefeed.config.tables.pattern import TablePattern
from changefeed.errors import ConfigurationError, RetryableError, WrongState
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from credentials.secrets import expanded
from sink.mongodb.connection import Client
from sink.mongodb.connection import connect as connect_to_target
from sink.opening import instead_of_documents
from source.compared import ComparedSource
from source.opening import open_compared
from verify.at_point import AtPoint
from verify.replication import ROWS_AT_ONCE, Passing, Replication
from verify.report import (
    DifferenceKind,
    DocumentDifference,
    DocumentsReport,
    Outcome,
    Report,
    TableReport,
    VerifyProgress,
)
from verify.verification import Verification, Wishes, rows_that_differ

_MOST = 4
"""Concurrent verifications of one node: each reads both sides as fast as it can."""
_MOST_DIFFERENCES = 1_000
_MOST_PARALLELISM = 64

QueueItem: TypeAlias = pb.VerifyEvent | Exception | None
"""None ends the stream."""


class VerifyService(VerifyServiceServicer):
    def __init__(self, guard: Guard, reader: ClusterReader, store: DesiredStore, stopping: threading.Event) -> None:
        self.guard = guard
        self._reader = reader
        self._store = store
        self._stopping = stopping
        self._free = threading.Semaphore(_MOST)

    @admits(Access.OPERATOR)
    def VerifyChangefeed(self, request: pb.VerifyChangefeedRequest, call: AdmittedCall) -> Iterator[pb.VerifyEvent]:
        """Only for operators: the differences that it shows are users' data."""
        wishes = _wishes(request)
        id = ChangefeedId(request.changefeed)
        known = self._reader.changefeed(id)
        configuration = known.info.configuration
        if kept := instead_of_documents(configuration):
            raise WrongState(
                f"changefeed {id!r} writes to {configuration.sink}, which keeps {kept}; there is nothing to compare"
            )
        if request.repair and not follows(known):
            state = known.status.lifecycle.state if known.status else "pending"
            raise WrongState(
                f"changefeed {id!r} is {state}, and rows are repaired by the nodes that replicate their tables: resume the changefeed, then "
                "repair; without --repair the two sides are only compared"
            )
        at = at_point(self._reader, id, sync_points.named(known, request.at)) if request.at else None
        if not self._free.acquire(blocking=False):
            raise RetryableError(f"this node already runs {_MOST} verifications; try again later, or ask another node")
        stop = threading.Event()
        checkpoints = EtcdCheckpoints(self._reader, id, stop) if follows(known) else None
        repairs = RepairRequests(self._reader, self._store, id, stop) if request.repair and at is None else None
        tables = partial(known_tables, self._reader, id)
        replication = Replication(checkpoints=checkpoints, repairs=repairs, known=tables, at=at)
        mends = PointRepair(id, self._reader, self._store, stop) if request.repair and at is not None else None
        run = _Run(known.info, wishes, replication, stop, show=request.show, repair=mends)
        try:
            if request.repair:
                named = ", ".join(request.tables) or "all tables"
                self._store.by(call.caller).record(id, "repair rows", named, after="rows that differ")
            call.when_over(stop.set)
            yield from run.events(self._stopping)
        finally:
            stop.set()
            self._free.release()


class _Run:
    """Runs a verification in a thread of its own, and passes on its events."""

    def __init__(
        self,
        info: ChangefeedInfo,
        wishes: Wishes,
        replication: Replication,
        stop: threading.Event,
        *,
        show: bool,
        repair: PointRepair | None,
    ) -> None:
        """`repair`: rows that differ at the point are written again, and their tables compared at the next one."""
        self._show = show
        self._repair = repair
        self._held_back: list[TableReport] = []
        self._holds_all = False
        self._configuration = info.configuration
        self._capture = info.capture
        self._wishes = wishes
        self._replication = replication
        self._stop = stop
        self._queue: queue.SimpleQueue[QueueItem] = queue.SimpleQueue()

    def events(self, stopping: threading.Event) -> Iterator[pb.VerifyEvent]:
        thread = threading.Thread(target=self._run, name=f"verify {self._configuration.id}", daemon=True)
        thread.start()
        while not self._stop.is_set():
            try:
                event = self._queue.get(timeout=0.5)
            except queue.Empty:
                if stopping.is_set():
                    raise RetryableError("this node is stopping; ask another one") from None
                continue
            if event is None:
                return
            if isinstance(event, Exception):
                raise event
            yield event

    def progress(self, progress: VerifyProgress) -> None:
        told = alike(progress, "tables", "tables_done", "ranges", "ranges_done", "documents")
        self._queue.put(pb.VerifyEvent(progress=told))

    def table(self, report: TableReport) -> None:
        if self._holds_all or (self._repair is not None and rows_that_differ(report.documents)):
            self._held_back.append(report)
        else:
            self._queue.put(_table_event(report, show=self._show))

    def _run(self) -> None:
        try:
            with (
                closing(open_compared(expanded(self._configuration.source), self._capture)) as source,
                closing(connect_to_target(expanded(self._configuration.sink))) as target,
            ):
                wishes, at = self._wishes, self._replication.at
                if self._repair is not None:
                    wishes = replace(wishes, max_differences=max(wishes.max_differences, ROWS_AT_ONCE))
                report = self._verification(source, target, wishes, self._replication)
                if self._repair is not None and at is not None and self._held_back:
                    report, at = self._repaired(report, at, self._repair, source, target)
            self._queue.put(_summary_event(report, at, live=self._replication.checkpoints is not None))
            self._queue.put(None)
        except Exception as error:  # noqa: BLE001 - raised again by the call's thread
            self._queue.put(error)

    def _verification(self, source: ComparedSource, target: Client, wishes: Wishes, replication: Replication) -> Report:
        return Verification(
            configuration=self._configuration,
            source=source,
            target=target,
            listener=self,
            wishes=wishes,
            replication=replication,
        ).run(self._stop)

    def _repaired(
        self, report: Report, at: AtPoint, repair: PointRepair, source: ComparedSource, target: Client
    ) -> tuple[Report, AtPoint]:
        before = {table.name: table for table in self._held_back}
        passing = Passing(source, self._replication.checkpoints, self._wishes.patience)
        why = repair.repair(at, before.values(), passing)
        at = repair.next_point(source.newest_time(), before)
        self._holds_all = True
        wishes = replace(self._wishes, names=frozenset(before))
        found = self._verification(source, target, wishes, replace(self._replication, at=at))
        again = [compared_again(before[table.name], table, why[table.name]) for table in found.tables]
        for table in again:
            self._queue.put(_table_event(table, show=self._show))
        return Report(tables=(*(table for table in report.tables if table.name not in before), *again)), at


def _wishes(request: pb.VerifyChangefeedRequest) -> Wishes:
    problems = []
    patterns = []
    for text in request.tables:
        try:
            patterns.append(TablePattern.parse(text))
        except ValueError as error:
            problems.append(f"tables: {error}")
    for name, most in (("max_differences", _MOST_DIFFERENCES), ("parallelism", _MOST_PARALLELISM)):
        if not 0 <= getattr(request, name) <= most:
            problems.append(f"{name}: found {getattr(request, name)}; write a whole number from 1 to {most}")
    if problems:
        raise ConfigurationError(problems)
    default = Wishes()
    return Wishes(
        tables=tuple(patterns),
        max_differences=request.max_differences or default.max_differences,
        parallelism=request.parallelism or default.parallelism,
        ignore_field_order=request.ignore_field_order,
    )


def _table_event(report: TableReport, *, show: bool) -> pb.VerifyEvent:
    return pb.VerifyEvent(
        table=pb.TableVerification(
            name=str(report.name),
            sources=map(str, report.sources),
            outcome=_outcome(report.outcome),
            aspects=[
                pb.AspectVerification(aspect=aspect, outcome=_outcome(result.outcome), details=result.details)
                for aspect, result in report.results.items()
            ],
            documents=_documents(report.documents, show=show) if report.documents else None,
        )
    )


def _summary_event(report: Report, at: AtPoint | None, *, live: bool) -> pb.VerifyEvent:
    return pb.VerifyEvent(
        summary=pb.VerifySummary(
            outcome=_outcome(report.outcome),
            succeeded=report.succeeded,
            live=live,
            tables=len(report.tables),
            documents=sum(each.documents.source for each in report.tables if each.documents),
            repaired=sum(each.documents.repaired for each in report.tables if each.documents),
            source_ts="" if at is None else str(at.point.source),
            target_ts="" if at is None else str(at.point.target),
        )
    )


def _documents(found: DocumentsReport, *, show: bool) -> pb.DocumentsVerification:
    return pb.DocumentsVerification(
        **alike(found, "source", "target", "complete", "repaired"),
        differences=[_difference(each, show=show) for each in found.differences],
    )


def _difference(found: DocumentDifference, *, show: bool) -> pb.DocumentDifference:
    return pb.DocumentDifference(
        kind=f"DIFFERENCE_KIND_{found.kind.name}",
        **alike(found, "key", "source", "target"),
        details=found.details if show or found.kind is DifferenceKind.UNSETTLED else (),
    )


def _outcome(outcome: Outcome) -> str:
    return f"VERIFY_OUTCOME_{outcome.name}"
