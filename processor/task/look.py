"""`look_around`: a task that does nothing but reach everything that a changefeed's windows need, from where they would run."""

from __future__ import annotations

from changefeed.lifecycle import ErrorReport
from processor.task.window_task import report_of
from processor.task.worker_resources import Shared, worker_resources


def look_around(shared: Shared, attempt: str) -> ErrorReport | None:
    try:
        with worker_resources.task(shared, attempt) as resources:
            resources.check_reachable()
    except Exception as error:  # noqa: BLE001 - the edge of a task: the error is returned as a report
        return report_of(error)
    return None
