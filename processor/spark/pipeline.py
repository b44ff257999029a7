"""`Pipeline`: runs one window in Spark, in the way that suits its width: a staying task, a job of one task, or a job of two stages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from pyspark import Broadcast

from changefeed.errors import PipelineUnavailable
from changefeed.lifecycle import ErrorReport
from changefeed.position import Window
from coordination import failpoint
from processor.copy.copy_task import run_copy_steps
from processor.copy.steps import CopyAnswers, CopyChunk, CopyStep
from processor.lanes.windows import WindowLimits, slices
from processor.spark.runner import Group, SparkRunner
from processor.spark.spark_watch import SparkWatch
from processor.spark.stays import Stays
from processor.task.job import ContextBase, JobContext, JobOutcome, JobSpec, together
from processor.task.rows.division import divided_tables
from processor.task.wide_window import apply_bucket, divide_tables, read_slice
from processor.task.window_task import look_around, replicate_window


@dataclass(frozen=True, slots=True)
class BroadcastContext:
    """The form in which tasks receive a context. A worker that already has the context, or its base, does not load it again."""

    key: str
    base_key: str
    base: Broadcast[ContextBase]
    rest: Broadcast[JobContext]

    def load(self, bases: Mapping[str, ContextBase]) -> JobContext:
        base = bases.get(self.base_key)
        return self.rest.value.over(self.base.value if base is None else base)


class SharedBase:
    """A base and its broadcast, for the contexts that use it and for whoever may make another context of it."""

    def __init__(self, base: ContextBase) -> None:
        """It has one user, which calls `release` in the end."""
        self.base = base
        self._lock = threading.Lock()
        self._users = 1
        self._broadcast: Broadcast[ContextBase] | None = None

    def hold(self) -> None:
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """The last user destroys the broadcast."""
        with self._lock:
            self._users -= 1
            if not self._users and self._broadcast is not None:
                self._broadcast.destroy(blocking=False)
                self._broadcast = None

    def through(self, spark: SparkRunner) -> Broadcast[ContextBase]:
        with self._lock:
            if self._broadcast is None:
                self._broadcast = spark.broadcast(self.base)
            return self._broadcast

    def doubt(self, broadcast: Broadcast[ContextBase] | None) -> None:
        """None: whichever there is."""
        with self._lock:
            if broadcast is None or self._broadcast is broadcast:
                self._broadcast = None


class SharedContext:
    """A context and its broadcast. The first job that needs the broadcast creates it, as does the first one after a failure of Spark."""

    def __init__(self, context: JobContext, base: SharedBase | None = None) -> None:
        """Without `base` no other context shares it."""
        self.context = context
        self._base = base or SharedBase(context.base)
        if base is not None:
            base.hold()
        self._lock = threading.Lock()
        self.handle: BroadcastContext | None = None
        """None: no job has needed it."""

    def through(self, spark: SparkRunner) -> BroadcastContext:
        with self._lock:
            if self.handle is None:
                base, rest = self._base.through(spark), spark.broadcast(self.context.without_base())
                self.handle = BroadcastContext(self.context.key, self._base.base.key, base, rest)
            return self.handle

    def doubt(self, handle: BroadcastContext | None) -> None:
        """Drops broadcasts whose JVM may be dead. If the JVM lives, other jobs may still use them; Spark removes them after these.

        None: a task that stays was lost, and the context went to it through its channel. Its base was sent with an earlier context.
        """
        self._base.doubt(handle.base if handle is not None else None)
        with self._lock:
            if self.handle is handle:
                self.handle = None

    def close(self) -> None:
        """No job uses it any more."""
        with self._lock:
            if self.handle is not None:
                self.handle.rest.destroy(blocking=False)
                self.handle = None
        self._base.release()


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """`watch` learns how jobs end in Spark. Without `stays` each window is a job."""

    spark: SparkRunner
    limits: WindowLimits
    watch: SparkWatch
    stays: Stays | None = None

    def run(self, shared: SharedContext, spec: JobSpec) -> JobOutcome:
        """Blocks until the whole window is durable downstream, or returns the error of one of its tasks in the outcome."""
        failpoint.reach("window_begins", shared.context.changefeed)
        begun_at = time.monotonic()
        group = _group(shared.context, spec.attempt)
        parallelism = shared.context.configuration.pipeline.parallelism
        if shared.context.configuration.apply_limit is not None:
            spec = replace(spec, limit_share=spec.limit_share / self.spark.executors())
        scan = spec.whole(shared.context.tables).scan
        limits = replace(self.limits, slices=1 if spec.alone else parallelism)
        cuts = slices(scan, limits, capture=shared.context.capture, density=spec.density)
        with self.watch.job(), self._broadcast(shared) as broadcast:

            def job() -> JobOutcome:
                return self.spark.run_one(group, partial(replicate_window, broadcast(), spec))

            if len(cuts) > 1 and self.spark.divides():
                with self._beside(len(cuts)):
                    outcome = self._run_wide(shared.context, broadcast(), spec, cuts)
                outcome.slices = len(cuts)
            elif spec.default and self.stays is not None:
                outcome = self.stays.run(shared.context, spec, broadcast, job)
            else:
                with self._beside(1):
                    outcome = job()
        outcome.took = timedelta(seconds=time.monotonic() - begun_at)
        errors = [outcome.error.code] if outcome.error else []
        failpoint.reach("window_ended", shared.context.changefeed, *outcome.rows.tally.applied, *errors)
        return outcome

    def copy(self, shared: SharedContext, steps: Sequence[CopyStep], attempt: str) -> CopyAnswers:
        """Runs steps of initial copies, in one task."""
        if shared.context.configuration.copy_limit is not None:
            among = self.spark.executors()
            steps = [_shared(step, among) if isinstance(step, CopyChunk) else step for step in steps]
        group = _group(shared.context, attempt)
        with self.watch.job(), self._beside(1), self._broadcast(shared) as broadcast:
            answers = self.spark.run_one(group, partial(run_copy_steps, broadcast(), steps, attempt))
        failpoint.reach("chunks_read", shared.context.changefeed)
        return answers

    def look(self, shared: SharedContext, attempt: str) -> ErrorReport | None:
        """Whether a task reaches the source, the target and etcd; None if it does."""
        group = _group(shared.context, attempt)
        with self.watch.job(), self._broadcast(shared) as broadcast:
            return self.spark.run_one(group, partial(look_around, broadcast(), attempt))

    @contextmanager
    def _broadcast(self, shared: SharedContext) -> Iterator[Callable[[], BroadcastContext]]:
        """The context's broadcast, made where it is asked for: a task that stays may need none."""
        handles = [shared.handle]

        def through() -> BroadcastContext:
            handle = shared.through(self.spark)
            handles.append(handle)
            return handle

        try:
            yield through
        except PipelineUnavailable:
            shared.doubt(handles[-1])
            raise

    def cancel(self, shared: SharedContext, attempt: str) -> None:
        if self.stays is not None:
            self.stays.cancel(attempt)
        self.spark.cancel(_group(shared.context, attempt))

    def _beside(self, tasks: int) -> AbstractContextManager[None]:
        return self.stays.beside(tasks) if self.stays is not None else nullcontext()

    def _run_wide(self, context: JobContext, handle: BroadcastContext, spec: JobSpec, cuts: list[Window]) -> JobOutcome:
        group, buckets = _group(context, spec.attempt), context.configuration.pipeline.parallelism
        divided = divided_tables(spec, context)
        parts = self.spark.run_shuffled(
            group,
            range(len(cuts)),
            partial(read_slice, handle, spec, cuts, buckets, divided),
            buckets,
            partial(apply_bucket, handle, spec, in_order=not divided),
            partial(divide_tables, buckets) if divided else None,
        )
        return together(parts)


def _group(context: JobContext, attempt: str) -> Group:
    """Of one attempt, so that it can be cancelled alone."""
    return Group(context.changefeed, f"{context.fence.run}-{attempt.rpartition('/')[2]}")


def _shared(step: CopyChunk, executors: int) -> CopyChunk:
    """Executors know nothing of each other: each has an equal part of its node's share."""
    return replace(step, limit_share=step.limit_share / executors)
