"""`MeasuredJobs`: runs windows through `Pipeline` and counts their results in the metrics."""

from __future__ import annotations

from collections.abc import Sequence

from admin.metrics import Metrics, WindowFacts
from changefeed.records import ChangefeedId
from processor.copy.steps import CopyAnswers, CopyStep
from processor.spark.pipeline import Pipeline, SharedContext
from processor.task.job import JobOutcome, JobSpec


class MeasuredJobs:
    def __init__(self, pipeline: Pipeline, metrics: Metrics) -> None:
        self._pipeline = pipeline
        self._metrics = metrics

    def run(self, shared: SharedContext, spec: JobSpec) -> JobOutcome:
        outcome = self._pipeline.run(shared, spec)
        facts = WindowFacts(
            events={type.value: count for type, count in outcome.applied.items()},
            bytes=outcome.bytes,
            took=outcome.took,
            retries=outcome.retries,
            skipped=outcome.skipped,
            divergences=outcome.divergences,
            rejected=outcome.rejected,
            failed=outcome.error is not None,
        )
        self._metrics.window_done(ChangefeedId(shared.context.changefeed), facts)
        return outcome

    def copy(self, shared: SharedContext, steps: Sequence[CopyStep], attempt: str) -> CopyAnswers:
        return self._pipeline.copy(shared, steps, attempt)

    def cancel(self, shared: SharedContext, spec: JobSpec) -> None:
        self._pipeline.cancel(shared, spec)
