"""`replicate_window`, `stay`, `look_around`: the tasks that run in a Spark worker for a window that is not divided (`wide_window.py` has the others).

    replicate_window    the job of one window: reads, mounts, folds and applies, all in one task
    stay                stays for a while: its driver hands it one window after another (`spark/stays.py`, `stay_plan.py`)
    look_around         does nothing but reach everything that the changefeed's windows need, from where they would run

A task never raises one of our errors: Spark would turn it into text. It returns an outcome that contains a report.

A window that is handed to a stay runs like the window of a job, under the stay's permit. If it belongs to another context than the one before,
after a DDL or an assignment, it brings that along, without the base that both have. Between two windows the task holds no table. Three things end its right to write: its permit, which looks at etcd before a window if the last look is some seconds old, and again while the window
runs; the revocation of its attempt; and the channel, which is checked before each write: any message from the driver while a window is running
means that the driver no longer waits for the window.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import structlog

from changefeed.errors import EventTooLarge, FencedError, InvariantError, SluiceError
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position, Window
from coordination import failpoint
from credentials.redaction import redacted
from processor.task.changefeed_resources import ChangefeedResources
from processor.task.channel import Call, ChannelLost, dial
from processor.task.job import JobContext, JobOutcome, JobSpec
from processor.task.rows.applier import Applier, SinkUse, WrittenAlone
from processor.task.rows.gate import EarlyEnd, Enough, Gate
from processor.task.worker_resources import Shared, worker_resources
from source.raw_row import Header
from source.source import RowCapture

_log = structlog.get_logger()

_PATIENCE_SECONDS = 120.0
"""A driver asks an idle task to leave after seconds. A driver that is silent for this long has forgotten the task."""


def replicate_window(shared: Shared, spec: JobSpec) -> JobOutcome:
    """The one stage of a narrow window."""
    return answered(shared, spec, lambda resources: replicate(resources, spec))


def replicate(resources: ChangefeedResources, spec: JobSpec) -> JobOutcome:
    """Replicates a narrow window with the resources of the running task.

    A window that holds too much, or for which the sink is too slow, ends early: checkpoints move sooner, and a slow table is found.
    """
    job, resources.source_rows.held = spec.whole(resources.context.tables), spec.held
    alone = WrittenAlone(sole=partial(resources.sole, job, spec.copied), asked=resources.asked(job, spec))
    use = SinkUse(
        limiter=resources.apply_limiter(spec.limit_share),
        folds=resources.folds,
        shares=spec.sink_share < 1,
        settled=spec.settled,
    )
    with Applier(resources.writer, job, worker_resources.beside, spec.copied, alone, use) as applier:
        mount, add = resources.mounter.mount, applier.add
        early = EarlyEnd(enough(resources), least_end(resources, spec), lambda: applier.overdue)
        with closing(events_of(resources, spec, job.scan, resources.rows, applier.outcome)) as events:
            for event, header in early.before(events):
                add(mount(event, header))
        applier.outcome.held = early.held
        if early.at is not None:
            applier.end_at(early.at)
        failpoint.reach("window_read", resources.context.changefeed)
        applier.finish()
        failpoint.reach("window_applied", resources.context.changefeed)
        applier.outcome.repaired = {spec.repairs[each.place.table.id].id for each in alone.asked}
        return applier.outcome


def look_around(shared: Shared, attempt: str) -> ErrorReport | None:
    try:
        with worker_resources.task(shared, attempt) as resources:
            resources.check_reachable()
    except Exception as error:  # noqa: BLE001 - the edge of a task: the error is returned as a report
        return report_of(error)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """How a stay ended. It says nothing about windows: each one was answered or is lost."""

    unreachable: str = ""
    """Why the task could not reach its driver. It has run no window then."""
    error: ErrorReport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedWindow:
    """`context`: without its base; None if it is that of the window before."""

    spec: JobSpec
    context: JobContext | None = None


def stay(shared: Shared, attempt: str, call: Call) -> Departure:
    try:
        with worker_resources.task(shared, attempt) as resources:
            return _serve(resources, call)
    except Exception as error:  # noqa: BLE001 - the edge of a task: the error is returned as a report
        return Departure(error=report_of(error))


def _serve(resources: ChangefeedResources, call: Call) -> Departure:
    try:
        channel = dial(call)
    except ChannelLost as lost:
        return Departure(unreachable=str(lost))

    def check_driver() -> None:
        if not channel.silent(0):
            raise FencedError("the driver of this staying task is gone, or no longer wants the window")

    worker_resources.check_before_writes(check_driver)
    with channel:
        try:
            while not channel.silent(_PATIENCE_SECONDS) and (window := channel.receive()) is not None:
                resources, outcome = _handed(resources, window)
                channel.send(outcome)
        except ChannelLost:
            return Departure()  # the driver has hung up itself, or is gone
    return Departure()


def _handed(resources: ChangefeedResources, window: HandedWindow) -> tuple[ChangefeedResources, JobOutcome]:
    """A task whose window has failed is asked to leave, so it does not matter then which context it has."""
    try:
        worker_resources.permit()
        if window.context is not None:
            resources = worker_resources.in_context(window.context)
        return resources, replicate(resources, window.spec)
    except Exception as error:  # noqa: BLE001 - the edge of a window: the error is returned as a report
        return resources, JobOutcome(error=report_of(error))


def events_of(
    resources: ChangefeedResources, spec: JobSpec, window: Window, rows: RowCapture, outcome: JobOutcome | None = None
) -> Generator[tuple[bytes, Header]]:
    """The events of a window that the job takes. The permit is checked between batches, and each second while the source is silent."""
    gate = Gate(spec.whole(resources.context.tables), resources.context.schemas, spec.held)
    takes, wants, ignores, scan = gate.takes, resources.row_filter.wants, resources.row_filter.ignores, rows.scan
    reader = rows.reader(spec.history)
    with closing(reader.read(window)) as batches:
        for batch in batches:
            worker_resources.permit()
            taken = 0
            for event, header in batch.scanned(scan):
                if wants(header) and takes(header) and not ignores(event, header):
                    if batch.unreadable:
                        raise EventTooLarge(batch.unreadable).about(resources.mounter.table(header).target.id)
                    taken += 1
                    yield event, header
            reader.took(taken, len(batch.events))
            if outcome is not None:
                outcome.silent_until = batch.silent_until


def least_end(resources: ChangefeedResources, spec: JobSpec) -> Position:
    return spec.job.least or spec.whole(resources.context.tables).scan.start


def enough(resources: ChangefeedResources) -> Enough:
    options = resources.context.configuration.pipeline
    return Enough(bytes=options.max_lag_batch, events=options.max_lag_events)


def answered(shared: Shared, spec: JobSpec, work: Callable[[ChangefeedResources], JobOutcome]) -> JobOutcome:
    try:
        with worker_resources.task(shared, spec.attempt, spec.sink_share) as resources:
            return work(resources)
    except Exception as error:  # noqa: BLE001 - the edge of a task: the error is returned as a report
        return JobOutcome(error=report_of(error))


def report_of(error: Exception, event: str = "task_failed", **facts: object) -> ErrorReport:
    """What is not an error of ours is a bug. It is logged with its traceback, as `event`."""
    if not isinstance(error, SluiceError):
        _log.exception(event, **facts)
        error = InvariantError(f"{type(error).__name__} in a task: {redacted(str(error))}")
    return ErrorReport.of(error, datetime.now(UTC))
