"""`JobSpec`, `JobOutcome`: the input and the result of a Spark job for one window, as small picklable values. Pure.

Inputs that seldom change are in the job's context (`job_context.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import timedelta

from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.requests import RepairRequest
from changefeed.source_history import SourceHistory
from changefeed.table import TableId, TableName
from processor.lanes.lanes import LaneJob
from processor.task.copied_ranges import CopiedRanges
from sink.row import WriteResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The tables, and the source's table names, of open DDLs. The schema store may not know the tables of events after such a DDL yet."""

    tables: frozenset[TableId] = frozenset()
    names: frozenset[TableName] = frozenset()
    unexplained: frozenset[TableName] = frozenset()
    """The names of DDLs that wait for a user since nobody could explain them. Whatever has such a name from then on is copied, some day."""
    uuids: Mapping[TableId, TableId] = field(default_factory=dict)
    """The tables that get a UUID by such a DDL, by that UUID. These UUIDs are among `tables`, too."""
    known_from: Position | None = None
    """A table of an earlier event that the schema store does not know is not replicated there: the filter did not want it yet, or every
    table but the stragglers is past it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One job of one lane. The tables of the default lane are in the context, not here."""

    attempt: str
    """The key in etcd that revokes the attempt. The job's tasks look for it."""
    job: LaneJob
    default: bool
    held: Held = field(default_factory=Held)
    copied: Mapping[TableId, CopiedRanges] = field(default_factory=dict)
    """What the initial copies of tables in copy contain already."""
    density: int | None = None
    """Bytes per second of cluster time in the lane's last window."""
    repairs: Mapping[TableId, RepairRequest] = field(default_factory=dict)
    """Rows to be repaired at the window's end, if one task has it alone."""
    alone: bool = False
    """One task, however wide the window: it may not take the slots of the other tables' windows, or its changes wait for a limit."""
    history: SourceHistory | None = None
    """That of the barrier that the job obeys."""
    limit_share: float = 1.0
    """Of the changefeed's `apply_limit`, for the executor that runs it."""
    sink_share: float = 1.0
    """For which part of the time it may keep the sink busy. Less than all only for one that is `alone`."""
    settled: bool = False
    """Its window may take long: its share has settled."""

    @classmethod
    def of(
        cls,
        attempt: str,
        job: LaneJob,
        held: Held,
        copied: Mapping[TableId, CopiedRanges],
        *,
        density: int | None = None,
        repairs: Mapping[TableId, RepairRequest] | None = None,
        alone: bool = False,
        history: SourceHistory | None = None,
        limit_share: float = 1.0,
        sink_share: float = 1.0,
        settled: bool = False,
    ) -> JobSpec:
        return cls(
            attempt=attempt,
            job=replace(job, tables=frozenset()),
            default=bool(job.tables),
            held=held,
            copied=copied,
            density=density,
            repairs=repairs or {},
            alone=alone,
            history=history,
            limit_share=limit_share,
            sink_share=sink_share,
            settled=settled,
        )

    def whole(self, tables: AbstractSet[TableId]) -> LaneJob:
        """The job with the context's tables, if it is a job of the default lane."""
        return replace(self.job, tables=tables) if self.default else self.job


@dataclass(slots=True, kw_only=True)
class JobOutcome:
    """The result of a window, or of one task's part of it. With an `error`, any part of it may have been applied."""

    rows: WriteResult = field(default_factory=WriteResult)
    """Its unsettled tables keep their checkpoint. Its receipts have to be committed before the window counts."""
    repaired: set[str] = field(default_factory=set)
    """The repair requests that were carried out. A row that the target refuses is not as the source has it, even so."""
    error: ErrorReport | None = None
    took: timedelta = timedelta()
    ended: Position | None = None
    """The window held or took too much and ended here, before its end. Everything before it is durable."""
    uneven: bool = False
    """Some rows after `ended` were applied, too."""
    silent_until: Position | None = None
    """The source has no match between the window's end and this position. Set only for a window that is read in one piece."""


def together(parts: Sequence[JobOutcome]) -> JobOutcome:
    """The outcome of a window from those of its buckets. It ends where the first bucket ended."""
    outcome = JobOutcome()
    for part in parts:
        outcome.rows.add(part.rows)
        outcome.error = _worse(outcome.error, part.error)
    ends = {part.ended for part in parts}
    outcome.ended = min((ended for ended in ends if ended is not None), default=None)
    outcome.uneven = len(ends) > 1
    return outcome


def _worse(one: ErrorReport | None, other: ErrorReport | None) -> ErrorReport | None:
    """A permanent error takes precedence over a retryable one."""
    if one is None or other is None:
        return one or other
    return other if one.retryable and not other.retryable else one
