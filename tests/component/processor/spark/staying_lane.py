"""`StayingLane`: runs one lane window by window, in long-lived tasks of a real Spark, between real servers."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from changefeed.position import Position, Window
from processor.lanes.windows import WindowLimits
from processor.spark.pipeline import Pipeline, SharedContext
from processor.spark.runner import Group, SparkRunner
from processor.spark.spark_watch import SparkWatch
from processor.spark.stay_plan import StayLimits
from processor.spark.stays import Stays
from processor.task.job import JobOutcome, JobSpec
from tests.component.processor.windowing import Windowing


class StayingLane:
    """Each window starts where the last one ended. Every window counts as narrow, whatever its length."""

    def __init__(self, spark: SparkRunner, windowing: Windowing, **limits: float) -> None:
        self.spark, self.windowing = spark, windowing
        self.stays = Stays(spark, StayLimits(**limits))
        self.pipeline = Pipeline(spark, WindowLimits(slice_seconds=3600), SparkWatch(spark.probe), self.stays)
        self.shared = SharedContext(windowing.shared.context)
        self.attempt = f"{windowing.attempt}/0"
        self._at = windowing.start
        self._number = 0
        self._threads = ThreadPoolExecutor(4)
        self._before = self._all_jobs()

    def close(self) -> None:
        self.stays.close()
        self._threads.shutdown()

    def write(self, count: int = 1) -> None:
        table = self.windowing.source[self.windowing.database]["orders"]
        for _ in range(count):
            self._number += 1
            table.insert_one({"_id": self._number, "text": "x" * 50})

    def spec(self, *, again: Position | None = None) -> JobSpec:
        """`again`: the start of a window that is retried."""
        window = Window(again or self._at, self.windowing.now())
        self._at = window.end
        spec = self.windowing.spec(window, window.end if again else window.start)
        return replace(spec, attempt=self.attempt)

    def step(self, count: int = 1) -> None:
        self.write(count)
        self.succeed(self.spec())

    def succeed(self, spec: JobSpec) -> None:
        outcome = self.pipeline.run(self.shared, spec)
        assert outcome.error is None, outcome.error

    def begun(self, spec: JobSpec) -> Future[JobOutcome]:
        return self._threads.submit(self.pipeline.run, self.shared, spec)

    def stand_in(self, number: int = 0, **changes: object) -> None:
        """Gives the following windows another context, over the same base if the changes leave that."""
        context = self.windowing.shared.context
        self.shared = SharedContext(replace(context, key=f"{context.key}/{number}", **changes))  # type: ignore[arg-type]

    @property
    def jobs(self) -> set[int]:
        """The Spark jobs of this lane's long-lived tasks so far."""
        return self._all_jobs() - self._before

    def _all_jobs(self) -> set[int]:
        context = self.spark._context
        assert context is not None
        run = self.windowing.shared.context.fence.run
        group = Group(self.windowing.shared.context.changefeed, f"{run}-stay")
        return set(context.statusTracker().getJobIdsForGroup(str(group)))

    @property
    def jobs_at_work(self) -> list[int]:
        context = self.spark._context
        assert context is not None
        return list(context.statusTracker().getActiveJobsIds())

    def arrived(self) -> int:
        return self.windowing.target[f"{self.windowing.database}_to"]["orders"].count_documents({})
