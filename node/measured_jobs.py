"""`MeasuredJobs`: runs windows and copies, and counts the results of windows in the metrics."""

from __future__ import annotations

from collections.abc import Sequence

from admin.metrics import Metrics
from changefeed.lifecycle import ErrorReport
from changefeed.records.requests import ChangefeedId
from processor.copy.chunk_copy import ReadChunk
from processor.copy.steps import CopyAnswers, CopyStep
from processor.spark.pipeline import SharedContext
from processor.spark.spark_watch import WatchedJobs
from processor.task.job import JobOutcome, JobSpec


class MeasuredJobs:
    def __init__(self, jobs: WatchedJobs, metrics: Metrics) -> None:
        self._jobs = jobs
        self._metrics = metrics

    def run(self, shared: SharedContext, spec: JobSpec) -> JobOutcome:
        outcome = self._jobs.run(shared, spec)
        changefeed, failed = ChangefeedId(shared.context.changefeed), outcome.error is not None
        self._metrics.window_done(changefeed, outcome.rows.tally, outcome.took, failed=failed)
        return outcome

    def copy(self, shared: SharedContext, steps: Sequence[CopyStep], attempt: str) -> CopyAnswers:
        answers = self._jobs.copy(shared, steps, attempt)
        chunks = [answer.copied for answer in answers if isinstance(answer, ReadChunk)]
        self._metrics.chunks_copied(ChangefeedId(shared.context.changefeed), chunks)
        return answers

    def look(self, shared: SharedContext, attempt: str) -> ErrorReport | None:
        return self._jobs.look(shared, attempt)

    def cancel(self, shared: SharedContext, spec: JobSpec) -> None:
        self._jobs.cancel(shared, spec)

    def cancel_copy(self, shared: SharedContext, attempt: str) -> None:
        self._jobs.cancel_copy(shared, attempt)
