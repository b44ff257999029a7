"""`Lifecycle`: the state of a changefeed, and how errors, commands and progress change it.

                        retryable error                  no progress for PATIENCE, error again
             ┌────────┐ ───────────────▶ ┌─────────┐ ───────────────────────────────▶ ┌─────────┐
      ──────▶│ normal │                  │ warning │                                  │ pending │
             └────────┘ ◀─────────────── └─────────┘ ◀─────────────────────────────── └─────────┘
              │  │  ▲       progress       │   │            the back-off is over        │   │  │
              │  │  └── resume (from stopped, failed, finished, pending) ───────────────┼───┼──┘
              │  └─ pause ─────────────────┼───┴──────────────▶ stopped ◀───────────────┘   │
              └─ target reached ───────────┴──────────────────▶ finished ◀──────────────────┘

      permanent, configuration or invariant error:  normal, warning, pending, stopped ─▶ failed
      remove: every state ─▶ removed, which is final

In `normal` and `warning` the pipelines run. On a retryable error the changefeed is in `warning` while its pipelines retry: a
short network outage stops nothing. If the error is still reported PATIENCE after the warning began, and the checkpoint has not
moved meanwhile, further retries would keep an overloaded server overloaded: the changefeed goes to `pending`. Its pipelines
stop for a back-off, which doubles with each round without progress. Then they run again, still in `warning` until the
checkpoint moves. A stalled majority is different: the primary answers, and calls that wait for the majority return as soon as
it moves. The changefeed stays in `warning`, however long that takes. So it does while a single node has an error, or cannot run
jobs: the tables of the other nodes go on, and that node tries again by itself, with pauses of its own.

A fenced error concerns the process that raised it, not the changefeed: it changes nothing. The first permanent error is
the cause and stays. A paused changefeed fails too, since its position may leave the oplog while it is paused. Late reports
from stopped pipelines change neither `failed`, `finished` nor `removed`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from random import Random

from changefeed.errors import (
    ConflictError,
    FencedError,
    PipelineUnavailable,
    RetryableError,
    SinkMajorityStalled,
    SinkUnavailable,
    SluiceError,
    SourceMajorityStalled,
    SourceUnavailable,
    UpdateWaits,
    UsersNotReplicated,
)
from changefeed.printable import shortened
from changefeed.table import TableId

PATIENCE = timedelta(seconds=30)
FIRST_BACK_OFF = timedelta(seconds=10)
LONGEST_BACK_OFF = timedelta(minutes=10)
_MOST_SAID = 8_000
"""Characters of a message. It may quote a definition of megabytes, and lies in etcd."""
_PASSING_AT_ONCE = {SourceMajorityStalled.code: SourceUnavailable.code, SinkMajorityStalled.code: SinkUnavailable.code}
"""Errors of a stalled majority. Each maps to the code that calls report which only see a timeout."""
_OF_NO_TABLE = frozenset({PipelineUnavailable.code, UpdateWaits.code, UsersNotReplicated.code})


class State(StrEnum):
    NORMAL = "normal"
    WARNING = "warning"
    PENDING = "pending"
    STOPPED = "stopped"
    FAILED = "failed"
    FINISHED = "finished"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReport:
    """An error as a value: `code` of the error tree, and whether waiting may help."""

    code: str
    message: str
    retryable: bool
    """Stored beside the code, so that a node of an older version can handle a newer version's codes."""
    at: datetime
    table: TableId | None = None
    """The only table that the error concerns. None: it may concern all."""
    node: str | None = None
    """The only node that has the error, while others go on. None: it may be all."""

    @classmethod
    def of(cls, error: SluiceError, at: datetime) -> ErrorReport:
        retryable = isinstance(error, RetryableError | ConflictError)
        message = shortened(str(error), _MOST_SAID)
        return cls(code=error.code, message=message, retryable=retryable, at=at, table=error.table)

    @property
    def lasting(self) -> bool:
        """Whether trying again does not help. An error of fencing says nothing about that."""
        return not self.retryable and self.code != FencedError.code

    @property
    def passes_at_once(self) -> bool:
        """Whether the error ends as soon as the majority moves. A growing back-off would only outlast it."""
        return self.code in _PASSING_AT_ONCE

    @property
    def keeps_running(self) -> bool:
        """Whether the changefeed stays in `warning`, however long the error lasts. A pause would stop the tables of other nodes too, and
        a node whose Spark does not run tries again by itself. So does a single table.
        """
        alone = self.node is not None or (self.table is not None and self.retryable)
        return self.passes_at_once or alone or self.code in _OF_NO_TABLE

    def on(self, node: str, *, alone: bool) -> ErrorReport:
        """The same error, as reported by a node. `alone`: other nodes do not have it."""
        return replace(self, message=f"node {node}: {self.message}", node=node if alone and self.retryable else None)

    def explains(self, other: ErrorReport) -> bool:
        """Whether `other` is a consequence of this error: a stalled majority makes other calls time out."""
        return _PASSING_AT_ONCE.get(self.code) == other.code


class Command(StrEnum):
    """A command of a user."""

    PAUSE = "pause"
    RESUME = "resume"
    REMOVE = "remove"


class Sign(StrEnum):
    """What the owner observes of the changefeed."""

    PROGRESS = "progress"
    """The changefeed's checkpoint moved."""
    TARGET_REACHED = "target_reached"
    """The changefeed's checkpoint is at its `target`."""
    TICK = "tick"
    """Time passed."""


Event = ErrorReport | Command | Sign


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    state: State = State.NORMAL
    error: ErrorReport | None = None
    attempts: int = 0
    """Back-offs begun since the checkpoint last moved."""
    since_at: datetime | None = None
    """When the state was entered. None: when the changefeed was created."""
    retry_at: datetime | None = None

    @property
    def running(self) -> bool:
        """Whether pipelines run."""
        return self.state in (State.NORMAL, State.WARNING)

    @property
    def resting(self) -> bool:
        """Whether only a user's command leaves this state."""
        return self.state in (State.STOPPED, State.FAILED, State.FINISHED)

    def after(self, event: Event, *, now: datetime, random: Random) -> Lifecycle:
        """The lifecycle once `event` is taken into account."""
        match event:
            case ErrorReport():
                return self._after_error(event, now, random)
            case Command():
                return self._after_command(event, now)
            case Sign():
                return self._after_sign(event, now)

    def _after_error(self, error: ErrorReport, now: datetime, random: Random) -> Lifecycle:
        if error.retryable:
            return self._after_retryable(error, now, random)
        if not error.lasting or self.state in (State.FAILED, State.FINISHED, State.REMOVED):
            return self
        return Lifecycle(state=State.FAILED, error=error, since_at=now)

    def _after_retryable(self, error: ErrorReport, now: datetime, random: Random) -> Lifecycle:
        match self.state:
            case State.NORMAL:
                return Lifecycle(state=State.WARNING, error=error, since_at=now)
            case State.WARNING if error.keeps_running:
                return replace(self, error=error)
            case State.WARNING if self.error is not None and self.error.keeps_running:
                return replace(self, error=error, since_at=now)
            case State.WARNING if self.since_at is not None and now - self.since_at >= PATIENCE:
                retry_at = now + back_off(self.attempts + 1, random)
                return Lifecycle(
                    state=State.PENDING, error=error, attempts=self.attempts + 1, since_at=now, retry_at=retry_at
                )
            case State.WARNING | State.PENDING:
                return replace(self, error=error)
            case State.STOPPED | State.FAILED | State.FINISHED | State.REMOVED:
                return self

    def _after_command(self, command: Command, now: datetime) -> Lifecycle:
        match (command, self.state):
            case (_, State.REMOVED):
                return self
            case (Command.REMOVE, _):
                return Lifecycle(state=State.REMOVED, since_at=now)
            case (Command.PAUSE, State.NORMAL | State.WARNING | State.PENDING):
                return Lifecycle(state=State.STOPPED, error=self.error, since_at=now)
            case (Command.PAUSE, State.STOPPED | State.FAILED | State.FINISHED):
                return self
            case (Command.RESUME, State.PENDING | State.STOPPED | State.FAILED | State.FINISHED):
                return Lifecycle(state=State.NORMAL, since_at=now)
            case (Command.RESUME, State.NORMAL | State.WARNING):
                return self
            case never:
                raise AssertionError(never)

    def _after_sign(self, sign: Sign, now: datetime) -> Lifecycle:
        match (sign, self.state):
            case (Sign.PROGRESS, State.WARNING):
                return Lifecycle(state=State.NORMAL, since_at=now)
            case (Sign.TARGET_REACHED, State.NORMAL | State.WARNING | State.PENDING):
                return Lifecycle(state=State.FINISHED, since_at=now)
            case (Sign.TICK, State.PENDING) if self.retry_at is not None and now >= self.retry_at:
                return Lifecycle(state=State.WARNING, error=self.error, attempts=self.attempts, since_at=now)
            case _:
                return self


def back_off(attempt: int, random: Random) -> timedelta:
    """10 s, 20 s, 40 s ... 10 min; up to a fifth less, so that changefeeds that failed together do not restart together."""
    doubled = FIRST_BACK_OFF * (1 << min(attempt - 1, 10))
    return min(doubled, LONGEST_BACK_OFF) * random.uniform(0.8, 1)
