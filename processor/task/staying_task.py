"""`stay`: the Spark task that stays for a while; its driver hands it one window after another (`stays.py`, `stay_plan.py`).

Each window runs like the window of a job, under the stay's permit. Between two windows the task holds no table. Three things end its
right to write: its permit, which looks at etcd before a window if the last look is some seconds old, and again while the window runs; the
revocation of its attempt; and the channel, which is checked before each write: any message from the driver while a window is running
means that the driver no longer waits for the window.
"""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.errors import FencedError
from changefeed.lifecycle import ErrorReport
from processor.task.changefeed_resources import ChangefeedResources
from processor.task.channel import Call, ChannelLost, dial
from processor.task.job import JobOutcome, JobSpec
from processor.task.window_task import replicate, report_of
from processor.task.worker_resources import Shared, worker_resources

_PATIENCE_SECONDS = 120.0
"""A driver asks an idle task to leave after seconds. A driver that is silent for this long has forgotten the task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """How a stay ended. It says nothing about windows: each one was answered or is lost."""

    unreachable: str = ""
    """Why the task could not reach its driver. It has run no window then."""
    error: ErrorReport | None = None


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

    with channel, worker_resources.checking_before_writes(check_driver):
        try:
            while not channel.silent(_PATIENCE_SECONDS) and (spec := channel.receive()) is not None:
                channel.send(_outcome(resources, spec))
        except ChannelLost:
            return Departure()  # the driver has hung up itself, or is gone
    return Departure()


def _outcome(resources: ChangefeedResources, spec: JobSpec) -> JobOutcome:
    try:
        worker_resources.permit()
        return replicate(resources, spec)
    except Exception as error:  # noqa: BLE001 - the edge of a window: the error is returned as a report
        return JobOutcome(error=report_of(error))
