"""`Fitness`: whether a node's Spark can run jobs, from the outcomes of its jobs and probes. Pure.

                       a job runs                             a job fails
    ┌──────────┐ ─────────────────▶ ┌───────┐ ─────────────────────────────▶ ┌─────────┐
    │ starting │                    │ ready │                                │ doubted │ is still ready
    └──────────┘      ┌───────────▶ └───────┘ ◀───────────────────────────── └─────────┘
                      │                              a job runs                │
                      │ jobs run for TRIAL, the next time for twice as long    │ two probes in a row fail, or
    ┌───────┐ ──▶ ┌───────┐                                                    │ the probe is silent for DOUBT
    │ unfit │     │ trial │                                                    │
    └───────┘ ◀── └───────┘                                                    │
        ▲  a job fails                                                         │
        └──────────────────────────────────────────────────────────────────────┘

Moving tables costs them seconds, so neither one lost worker nor one good moment moves any: a single failure is followed by a probe, which
also replaces a dead JVM, and a Spark that comes and goes has to run for longer each time before it counts. A probe is a job that does
nothing. Without doubt there is none, since windows say the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from changefeed.lifecycle import ErrorReport
from changefeed.records.node import NodeHealth

DOUBT = timedelta(seconds=30)
"""How long a probe may be silent, if Spark ran jobs before: more than the start of a JVM takes on a busy machine."""
TRIAL = timedelta(seconds=10)
LONGEST_TRIAL = timedelta(minutes=5)
FORGET = timedelta(minutes=15)
"""A lapse counts for so long."""
FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(minutes=1)
"""Between two probes of a Spark that does not run."""
TRIAL_PAUSE = timedelta(seconds=5)
_FATAL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitness:
    """All moments are monotonic seconds."""

    ready: bool = False
    error: ErrorReport | None = None
    """Of the last failed job or probe, unless a job has run since."""
    failures: int = 0
    """Probes that have failed in a row."""
    doubted_at: float | None = None
    """When a job failed, unless one has run since."""
    lapses: int = 0
    """How often it has become unfit lately."""
    lapsed_at: float = float("-inf")
    running_since: float | None = None
    """The first job that has run since the last failure."""
    probe_at: float | None = 0.0
    """When the next probe is due. None: there is no need of one."""

    @property
    def health(self) -> NodeHealth:
        return NodeHealth(ready=self.ready, error=None if self.ready else self.error)

    def ran(self, now: float) -> Fitness:
        """A job has ended well."""
        since = now if self.running_since is None else self.running_since
        lapses = 0 if now - self.lapsed_at >= FORGET.total_seconds() else self.lapses
        ready = self.ready or now - since >= trial(lapses).total_seconds()
        return replace(
            self,
            ready=ready,
            error=None,
            failures=0,
            doubted_at=None,
            lapses=lapses,
            running_since=since,
            probe_at=None if ready else now + TRIAL_PAUSE.total_seconds(),
        )

    def failed(self, error: ErrorReport, now: float) -> Fitness:
        """A window or a step of a copy has failed in Spark. That may be its own fault, or a worker's, so it is probed."""
        if not self.ready:
            return self
        doubted_at = now if self.doubted_at is None else self.doubted_at
        probe_at = now if self.probe_at is None else self.probe_at
        return replace(self, error=error, doubted_at=doubted_at, probe_at=probe_at)

    def probe_failed(self, error: ErrorReport, now: float) -> Fitness:
        failures = self.failures + 1
        pause = min(FIRST_PAUSE * 2 ** min(failures - 1, 10), LONGEST_PAUSE)
        failed = self._unfit(error, now) if self.ready and failures >= _FATAL else self
        return replace(failed, error=error, failures=failures, running_since=None, probe_at=now + pause.total_seconds())

    def looked(self, now: float) -> Fitness:
        """Time has passed. A probe that does not answer is as bad as one that fails."""
        if not self.ready or self.doubted_at is None or now - self.doubted_at < DOUBT.total_seconds():
            return self
        assert self.error is not None
        return self._unfit(self.error, now)

    def _unfit(self, error: ErrorReport, now: float) -> Fitness:
        lapses = 1 if now - self.lapsed_at >= FORGET.total_seconds() else self.lapses + 1
        return replace(
            self, ready=False, error=error, lapses=lapses, lapsed_at=now, running_since=None, doubted_at=None
        )


def trial(lapses: int) -> timedelta:
    """How long Spark has to run jobs before it counts as ready. The first start needs one job only."""
    return min(TRIAL * 2 ** min(lapses - 1, 10), LONGEST_TRIAL) if lapses else timedelta(0)
