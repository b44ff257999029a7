"""`MeasuredJobs`: runs windows and copies through `Pipeline` and counts their results in the metrics."""

from __future__ import annotations

from collections.abc import Sequence

from admin.metrics import Metrics
from changefeed.records import ChangefeedId, CopiedChunk
from processor.copy.steps import CopyAnswers, CopyStep
from processor.spark.pipeline import Pipeline, SharedContext
from processor.task.job import JobOutcome, JobSpec


class MeasuredJobs:
    def __init__(self, pipeline: Pipeline, metrics: Metrics) -> None:
        self._pipeline = pipeline
        self._metrics = metrics

    def run(self, shared: SharedContext, spec: JobSpec) -> JobOutcome:
        outcome = self._pipeline.run(shared, spec)
        changefeed, failed = ChangefeedId(shared.context.changefeed), outcome.error is not None
        self._metrics.window_done(changefeed, outcome.tally, outcome.took, failed=failed)
        return outcome

    def copy(self, shared: SharedContext, steps: Sequence[CopyStep], attempt: str) -> CopyAnswers:
        answers = self._pipeline.copy(shared, steps, attempt)
        chunks = [answer for answer in answers if isinstance(answer, CopiedChunk)]
        self._metrics.chunks_copied(ChangefeedId(shared.context.changefeed), chunks)
        return answers

    def cancel(self, shared: SharedContext, spec: JobSpec) -> None:
        self._pipeline.cancel(shared, spec)
