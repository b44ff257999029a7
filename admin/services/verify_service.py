"""`VerifyService`: compares the source and the target of a changefeed, with this node's credentials."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any, TypeAlias

from admin.access import Access, Guard
from admin.cluster_reader import ClusterReader, follows, tables_of
from admin.desired.desired_store import DesiredStore
from admin.services.rpc import streaming
from admin.services.verified_changefeed import EtcdCheckpoints, RepairRequests
from admin.stubs.sluice.admin.v1 import verify_pb2 as pb
from admin.stubs.sluice.admin.v1.verify_pb2_grpc import VerifyServiceServicer
from changefeed.config.tables.pattern import TablePattern
from changefeed.errors import ConfigurationError, RetryableError, WrongState
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from changefeed.table import TableSchema
from credentials.secrets import expanded
from sink.mongodb.connection import connect as connect_to_target
from verify.replication import Replication
from verify.report import DocumentDifference, DocumentsReport, Outcome, Report, TableReport, VerifyProgress
from verify.sides import open_compared_source
from verify.verification import Verification, Wishes

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

    @streaming(Access.OPERATOR)
    def VerifyChangefeed(self, request: pb.VerifyChangefeedRequest, context: Any) -> Iterator[pb.VerifyEvent]:
        """Only for operators: the differences that it shows are users' data."""
        wishes = _wishes(request)
        id = ChangefeedId(request.changefeed)
        with self._reader.read() as view:
            known = view.changefeed(id)
        configuration = known.info.configuration
        if not configuration.sink_traits.keeps_documents:
            kept = (
                "messages and no documents: read them with `sluice read`"
                if configuration.sink_traits.keeps_messages
                else "nothing"
            )
            raise WrongState(
                f"changefeed {id!r} writes to {configuration.sink}, which keeps {kept}; there is nothing to compare"
            )
        if request.repair and not follows(known):
            state = known.status.lifecycle.state if known.status else "pending"
            raise WrongState(
                f"changefeed {id!r} is {state}, and rows are repaired by the nodes that replicate their tables: resume the changefeed, then "
                "repair; without --repair the two sides are only compared"
            )
        if not self._free.acquire(blocking=False):
            raise RetryableError(f"this node already runs {_MOST} verifications; try again later, or ask another node")
        stop = threading.Event()
        checkpoints = EtcdCheckpoints(self._reader, id, stop) if follows(known) else None
        repairs = RepairRequests(self._reader, self._store, id, stop) if request.repair else None
        replication = Replication(checkpoints=checkpoints, repairs=repairs, known=partial(self._known_tables, id))
        run = _Run(known.info, wishes, replication, stop)
        try:
            context.add_callback(stop.set)
            yield from run.events(self._stopping)
        finally:
            stop.set()
            self._free.release()

    def _known_tables(self, id: ChangefeedId) -> tuple[TableSchema, ...]:
        with self._reader.read() as view:
            return tables_of(view.changefeed(id)).living


class _Run:
    """Runs a verification in a thread of its own, and passes on its events."""

    def __init__(
        self,
        info: ChangefeedInfo,
        wishes: Wishes,
        replication: Replication,
        stop: threading.Event,
    ) -> None:
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
        self._queue.put(_progress_event(progress))

    def table(self, report: TableReport) -> None:
        self._queue.put(_table_event(report))

    def _run(self) -> None:
        try:
            with (
                closing(open_compared_source(expanded(self._configuration.source), self._capture)) as source,
                closing(connect_to_target(expanded(self._configuration.sink))) as target,
            ):
                report = Verification(
                    configuration=self._configuration,
                    source=source,
                    target=target,
                    listener=self,
                    wishes=self._wishes,
                    replication=self._replication,
                ).run(self._stop)
            self._queue.put(_summary_event(report, live=self._replication.checkpoints is not None))
            self._queue.put(None)
        except Exception as error:  # noqa: BLE001 - raised again by the call's thread
            self._queue.put(error)


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


def _progress_event(found: VerifyProgress) -> pb.VerifyEvent:
    return pb.VerifyEvent(
        progress=pb.VerifyProgress(
            tables=found.tables,
            tables_done=found.tables_done,
            ranges=found.ranges,
            ranges_done=found.ranges_done,
            documents=found.documents,
        )
    )


def _table_event(report: TableReport) -> pb.VerifyEvent:
    return pb.VerifyEvent(
        table=pb.TableVerification(
            name=str(report.name),
            sources=map(str, report.sources),
            outcome=_outcome(report.outcome),
            aspects=[
                pb.AspectVerification(aspect=aspect, outcome=_outcome(result.outcome), details=result.details)
                for aspect, result in report.results.items()
            ],
            documents=_documents(report.documents) if report.documents else None,
        )
    )


def _summary_event(report: Report, *, live: bool) -> pb.VerifyEvent:
    return pb.VerifyEvent(
        summary=pb.VerifySummary(
            outcome=_outcome(report.outcome),
            succeeded=report.succeeded,
            live=live,
            tables=len(report.tables),
            documents=sum(each.documents.source for each in report.tables if each.documents),
            repaired=sum(each.documents.repaired for each in report.tables if each.documents),
        )
    )


def _documents(found: DocumentsReport) -> pb.DocumentsVerification:
    return pb.DocumentsVerification(
        source=found.source,
        target=found.target,
        differences=map(_difference, found.differences),
        complete=found.complete,
        repaired=found.repaired,
    )


def _difference(found: DocumentDifference) -> pb.DocumentDifference:
    return pb.DocumentDifference(kind=f"DIFFERENCE_KIND_{found.kind.name}", key=found.key, details=found.details)


def _outcome(outcome: Outcome) -> str:
    return f"VERIFY_OUTCOME_{outcome.name}"
