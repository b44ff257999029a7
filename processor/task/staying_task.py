"""`stay`: the Spark task that stays for a while; its driver hands it one window after another (`stays.py`, `stay_plan.py`).

Each window runs as that of a job of its own does, under the stay's permit. Between two windows it holds no table. Three things end what it may write: its
permit, which looks at etcd before a window when the last look is some seconds old, and again while it runs; its attempt, revoked; and the channel, looked
at before each write: whatever comes from the driver while a window is at work says that the driver no longer waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.errors import FencedError
from changefeed.lifecycle import ErrorReport
from processor.task.channel import Call, ChannelLost, dial
from processor.task.job import JobOutcome, JobSpec
from processor.task.window_task import replicate, report_of
from processor.task.worker_resources import ChangefeedResources, Shared, worker_resources

_PATIENCE_SECONDS = 120.0
"""A driver asks an idle task to leave after seconds. One that says nothing for so long has forgotten it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """How a stay ended. Of its windows it says nothing: each had its answer, or is lost."""

    unreachable: str = ""
    """Why its driver was not reached. It has done nothing then."""
    error: ErrorReport | None = None


def stay(shared: Shared, attempt: str, call: Call) -> Departure:
    try:
        with worker_resources.task(shared, attempt) as resources:
            return _serve(resources, call)
    except Exception as error:  # noqa: BLE001 - the edge of a task: it travels on as a report
        return Departure(error=report_of(error))


def _serve(resources: ChangefeedResources, call: Call) -> Departure:
    try:
        channel = dial(call)
    except ChannelLost as lost:
        return Departure(unreachable=str(lost))

    def heed() -> None:
        if not channel.silent(0):
            raise FencedError("the driver of this task is gone, or does not want the window any more")

    with channel, worker_resources.heeding(heed):
        try:
            while not channel.silent(_PATIENCE_SECONDS) and (spec := channel.receive()) is not None:
                channel.send(_outcome(resources, spec))
        except ChannelLost:
            return Departure()  # the driver knows that it hung up, or is gone
    return Departure()


def _outcome(resources: ChangefeedResources, spec: JobSpec) -> JobOutcome:
    try:
        worker_resources.permit()
        return replicate(resources, spec)
    except Exception as error:  # noqa: BLE001 - the edge of a window: it travels on as a report
        return JobOutcome(error=report_of(error))
