"""Bugs of tasks, of the windows that they apply, and of what the target has acknowledged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import processor.job_ends
import processor.lanes.lane_plan
import processor.spark.pipeline
import processor.task.job
import processor.task.permit
import source.oplog.update
from changefeed.errors import PipelineUnavailable
from processor.job_contexts import JobContexts
from processor.job_runs import Attempts
from processor.lanes.lanes import Lanes
from processor.spark.stays import Stay
from processor.task.job import JobOutcome
from processor.task.rows.applier import Applier
from processor.task.window_task import replicate_window
from sink.asked_rows import RowRepairs
from sink.mongodb.commander import Commander
from sink.mongodb.connection import write_time
from sink.mongodb.ddl.ddl_applier import MongoDdlApplier
from sink.mongodb.rows.bulk_plan import CommandSizes
from tests.simulation.planted.bug import Bug


def _tasks_ask_for_no_permit() -> AbstractContextManager[Any]:
    return patch.object(processor.task.permit.TaskPermit, "__call__", lambda self: self._budget)


def _lost_attempts_are_not_revoked() -> AbstractContextManager[Any]:
    return patch.object(Attempts, "_revoke", lambda self, attempt, reason: None)


def _a_window_that_its_stay_lost_counts_as_not_taken() -> AbstractContextManager[Any]:
    hand_over = Stay._hand_over

    def or_nothing(self: Stay, channel: Any, context: Any, spec: Any) -> JobOutcome | None:
        try:
            return hand_over(self, channel, context, spec)
        except PipelineUnavailable:
            return None

    return patch.object(Stay, "_hand_over", or_nothing)


def _tasks_end_before_their_last_batch_is_written() -> AbstractContextManager[Any]:
    return patch.object(Applier, "_wait", lambda self: setattr(self, "_writing", None))


def _windows_are_reported_before_they_are_acknowledged() -> AbstractContextManager[Any]:
    def run(self: Any, shared: Any, spec: Any) -> JobOutcome:
        handle = shared.through(self.spark)
        task = partial(replicate_window, handle, spec)
        self.spark._begin(processor.spark.pipeline._group(shared.context, spec.attempt), task)
        return JobOutcome()

    return patch.object(processor.spark.pipeline.Pipeline, "run", run)


def _failed_windows_count_as_done() -> AbstractContextManager[Any]:
    failed = processor.job_ends.failed

    def done(following: Any, number: int, error: Any, **rest: Any) -> Any:
        troubled = failed(following, number, error, **rest)
        return replace(troubled, lanes=following.lanes.finished(number))

    return patch("processor.job_ends.failed", done)


def _a_slow_table_stays_with_the_others() -> AbstractContextManager[Any]:
    return patch("processor.job_ends.slowest", lambda outcome, seconds: None)


def _a_slow_table_shares_commands_with_others() -> AbstractContextManager[Any]:
    return patch.object(CommandSizes, "may_share", lambda self, table: True)


def _others_wait_for_a_slow_lane() -> AbstractContextManager[Any]:
    plan = processor.lanes.lane_plan.plan

    def planned(lanes: Lanes, *rest: Any) -> Any:
        return [] if any(map(lanes.lane_of, lanes.running)) else plan(lanes, *rest)

    return patch("processor.following.plan", planned)


def _windows_that_ended_early_count_as_whole() -> AbstractContextManager[Any]:
    succeeded = processor.job_ends.succeeded

    def whole(following: Any, number: int, outcome: JobOutcome, *rest: Any, **more: Any) -> Any:
        return succeeded(following, number, replace(outcome, ended=None), *rest, **more)

    return patch("processor.job_ends.succeeded", whole)


def _a_window_ends_where_its_last_bucket_ended() -> AbstractContextManager[Any]:
    def last(parts: Sequence[JobOutcome]) -> JobOutcome:
        ends = [part.ended for part in parts if part.ended is not None]
        whole = len(ends) < len(parts)
        return replace(processor.task.job.together(parts), ended=None if whole else max(ends), uneven=False)

    return patch("processor.spark.pipeline.together", last)


def _writes_of_two_primaries_are_confirmed_together() -> AbstractContextManager[Any]:
    def any_primary(self: Commander, reply: Mapping[str, Any], doing: str) -> None:
        self._deferred = write_time(reply)

    return patch.object(Commander, "_same_primary", any_primary)


def _windows_keep_the_schemas_of_before_a_ddl() -> AbstractContextManager[Any]:
    return patch.object(JobContexts, "renew", lambda self: None)


def _rows_are_not_acknowledged_by_the_majority() -> AbstractContextManager[Any]:
    def unconcerned(command: dict[str, Any], seconds: float) -> dict[str, Any]:
        return {name: value for name, value in command.items() if name != "writeConcern"}

    return patch("sink.mongodb.commander._bounded", unconcerned)


def _ddls_are_not_acknowledged_by_the_majority() -> AbstractContextManager[Any]:
    def answer(self: MongoDdlApplier, command: Any, permitted: float) -> Any:
        return self._client[command.db].command(dict(command.body))

    return patch.object(MongoDdlApplier, "_answer", answer)


def _repairs_count_as_done_when_they_begin() -> AbstractContextManager[Any]:
    return patch("sink.mongodb.rows.row_writer.RowRepairs", lambda asked, _: RowRepairs(asked, None))


def _arrays_are_not_shortened() -> AbstractContextManager[Any]:
    array = source.oplog.update._array

    def without_lengths(found: Any, path: Any, diff: bytes, at: int) -> Iterator[Any]:
        yield from array(found, path, diff, at)
        found.truncated.clear()

    return patch("source.oplog.update._array", without_lengths)


WINDOW_BUGS: Mapping[str, Bug] = {
    "tasks ask for no permit": Bug(_tasks_ask_for_no_permit, 600),
    "lost attempts are not revoked": Bug(_lost_attempts_are_not_revoked, 400),
    "a window that its stay lost counts as not taken": Bug(_a_window_that_its_stay_lost_counts_as_not_taken, 700),
    "tasks end before their last batch is written": Bug(_tasks_end_before_their_last_batch_is_written, 10),
    "windows are reported before they are acknowledged": Bug(_windows_are_reported_before_they_are_acknowledged, 20),
    "failed windows count as done": Bug(_failed_windows_count_as_done, 20),
    "windows that ended early count as whole": Bug(_windows_that_ended_early_count_as_whole, 10),
    "a window ends where its last bucket ended": Bug(_a_window_ends_where_its_last_bucket_ended, 60),
    "writes of two primaries are confirmed together": Bug(_writes_of_two_primaries_are_confirmed_together, 200),
    "a slow table stays with the others": Bug(_a_slow_table_stays_with_the_others, 5, slow=True),
    "a slow table shares commands with others": Bug(_a_slow_table_shares_commands_with_others, 40, slow=True),
    "others wait for a slow lane": Bug(_others_wait_for_a_slow_lane, 5, slow=True),
    "windows keep the schemas of before a DDL": Bug(_windows_keep_the_schemas_of_before_a_ddl, 10),
    "rows are not acknowledged by the majority": Bug(_rows_are_not_acknowledged_by_the_majority, 200),
    "DDLs are not acknowledged by the majority": Bug(_ddls_are_not_acknowledged_by_the_majority, 90),
    "arrays are not shortened": Bug(_arrays_are_not_shortened, 40),
    "repairs count as done when they begin": Bug(_repairs_count_as_done_when_they_begin, 600),
}
