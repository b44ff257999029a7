"""`Overdue`: which jobs take too long, and which are not wanted any more and do not end. Pure.

A job that is not wanted ends by itself: its permit, which is asked before each write, looks at etcd every two seconds. One that never comes to
its next write does not, as when a row's value or the driver's library holds it. Spark is asked to end such a job, and kills its Python worker.

      0   a window begins
     60   it has no answer: the changefeed's warning names its tables, and so does `sluice table list`
    100   the user pauses the changefeed
    130   the window is still running: it is cancelled, its worker is killed, and its attempt revoked
    160   again, should it still be running

A job that builds indexes may take hours at the target, which goes on with them whoever waits: it is neither told nor cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice

from changefeed.errors import TaskOverdue
from changefeed.lifecycle import ErrorReport
from changefeed.printable import named
from changefeed.table import TableId, TableName

GRACE_SECONDS = 30.0
"""More than a permit lasts, with the command that was sent under it."""
WINDOW_SECONDS = 60.0
MOST_REPORTED = 64
"""Tables."""
COPY_SECONDS = 300.0
"""A chunk is divided after two minutes of reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """`attempt` tells it from all others that are running. `patience`: the seconds that it may take."""

    attempt: str
    begun_at: float
    patience: float
    wanted: bool = True
    in_the_way: bool = False
    """Of tables that are to be stopped, or to leave the node. They wait for it as long as it is not late."""

    def late(self, now: float) -> bool:
        return now >= self.begun_at + self.patience


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """All moments are monotonic seconds."""

    late: frozenset[str] = frozenset()
    """The attempts."""
    to_cancel: frozenset[str] = frozenset()
    """As of this decision."""
    unwanted_since: Mapping[str, float] = field(default_factory=dict)
    """Since a job is not wanted, or was last cancelled."""
    next_at: float = float("inf")
    """When something changes if no job begins or ends."""

    def next(self, jobs: Iterable[RunningJob], now: float) -> Overdue:
        jobs = tuple(jobs)
        unwanted = [job.attempt for job in jobs if not job.wanted or (job.in_the_way and job.late(now))]
        since = {attempt: self.unwanted_since.get(attempt, now) for attempt in unwanted}
        cancel = frozenset(attempt for attempt, at in since.items() if now >= at + GRACE_SECONDS)
        since |= dict.fromkeys(cancel, now)
        moments = [at + GRACE_SECONDS for at in since.values()]
        moments += [end for job in jobs if (end := job.begun_at + job.patience) > now]
        return Overdue(
            late=frozenset(job.attempt for job in jobs if job.late(now)),
            to_cancel=cancel,
            unwanted_since=since,
            next_at=min(moments, default=float("inf")),
        )


def late_reports(
    what: str, seconds: float, names: Mapping[TableId, TableName], at: datetime
) -> Mapping[TableId, ErrorReport]:
    """`names`: the job's tables, of which one at least is held up."""
    message = (
        f"{what} of {named(names.values())} has had no answer for {seconds:g} s: it waits for Spark, or something holds it; the log of Spark's worker "
        "names the row (task_stands_still); other tables go on without it once its table is stopped (sluice table stop)"
    )
    error = ErrorReport.of(TaskOverdue(message), at)
    return {table: replace(error, table=table) for table in islice(names, MOST_REPORTED)}
