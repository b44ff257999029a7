"""The error tree. Every error of Sluice is one of these; adapters translate what their libraries raise.

SluiceError
├── RetryableError          the cause may go away by itself: wait `retry_after`, try again
│   ├── coordination_unavailable    etcd does not answer
│   │   └── outcome_unknown             a transaction was sent to etcd and its answer never came
│   │       └── coordination_full           etcd is out of space: it reads and keeps leases alive, but takes no write
│   ├── source_unavailable          the source does not answer, or has no primary
│   │   └── source_majority_stalled     its primary answers, and its majority does not move
│   ├── source_refused              authentication or privileges at the source: somebody grants them, and it goes on
│   ├── sink_unavailable            the target does not answer, refuses writes for now, or is busy
│   │   └── sink_majority_stalled       its primary takes writes, and its majority does not move
│   ├── sink_refused                authentication or privileges at the target
│   └── pipeline_unavailable        Spark lost a worker or an executor, or cannot start
├── PermanentError          somebody has to do something
│   ├── coordination_refused        authentication or privileges in etcd
│   ├── record_unreadable           a value in etcd is damaged, or of a newer version of Sluice
│   ├── history_lost                the position is no longer in the source's oplog
│   ├── event_too_large             a change is larger than a change stream of the source can show, in parts too
│   ├── source_unsupported          the source cannot do what is asked (a standalone server, too old)
│   ├── ddl_refused                 the target refused a DDL
│   ├── ddl_unsupported             the sink cannot express a DDL
│   ├── ddl_ambiguous               after a crash the downstream is neither as before a DDL nor as after it
│   ├── target_occupied         documents stand where a table is to be copied to
│   ├── row_rejected                the target refused a row for what it is
│   ├── divergence                  an event does not fit the downstream's document
│   ├── wrong_state                 what is asked of a changefeed or node does not go with its state
│   ├── not_authenticated           the caller of the admin API did not say who it is
│   └── not_permitted               the caller of the admin API may not do this
├── FencedError             fenced: this process is no longer who it was; it stops at once
├── ConfigurationError      configuration_invalid: what the user wrote is wrong, with every problem in it
├── ConflictError           conflict: somebody else changed the same thing first
├── NotFoundError           not_found: there is no such thing
└── InvariantError          invariant_violated: a bug of ours; nothing goes on after it
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar


class SluiceError(Exception):
    """A message gives identity, expected, observed, remedy; `code` never changes once released."""

    code: ClassVar[str] = "error"


class RetryableError(SluiceError):
    code = "retryable"

    def __init__(self, message: str, *, retry_after: timedelta = timedelta(seconds=1)) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class CoordinationUnavailable(RetryableError):
    code = "coordination_unavailable"


class OutcomeUnknown(CoordinationUnavailable):
    """It may have happened, and may still happen, until `FencedStore.settle` has returned."""

    code = "outcome_unknown"


class CoordinationFull(OutcomeUnknown):
    """etcd refuses each write from then on, but the ones that it was at when it ran out of space it may have taken and refused."""

    code = "coordination_full"


class SourceUnavailable(RetryableError):
    code = "source_unavailable"


class SourceMajorityStalled(SourceUnavailable):
    code = "source_majority_stalled"


class SourceRefused(RetryableError):
    code = "source_refused"


class SinkUnavailable(RetryableError):
    code = "sink_unavailable"


class SinkMajorityStalled(SinkUnavailable):
    code = "sink_majority_stalled"


class SinkRefused(RetryableError):
    code = "sink_refused"


class PipelineUnavailable(RetryableError):
    code = "pipeline_unavailable"


class PermanentError(SluiceError):
    code = "permanent"


class CoordinationRefused(PermanentError):
    code = "coordination_refused"


class RecordUnreadable(PermanentError):
    code = "record_unreadable"


class HistoryLost(PermanentError):
    code = "history_lost"


class EventTooLarge(PermanentError):
    code = "event_too_large"


class SourceUnsupported(PermanentError):
    code = "source_unsupported"


class DdlRefused(PermanentError):
    code = "ddl_refused"


class DdlUnsupported(PermanentError):
    code = "ddl_unsupported"


class DdlAmbiguous(PermanentError):
    code = "ddl_ambiguous"


class TargetOccupied(PermanentError):
    code = "target_occupied"


class RowRejected(PermanentError):
    code = "row_rejected"


class Divergence(PermanentError):
    code = "divergence"


class WrongState(PermanentError):
    code = "wrong_state"


class NotAuthenticated(PermanentError):
    code = "not_authenticated"


class NotPermitted(PermanentError):
    code = "not_permitted"


class FencedError(SluiceError):
    code = "fenced"


class ConfigurationError(SluiceError):
    """Carries every problem found, so that a user mends them in one go."""

    code = "configuration_invalid"

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class ConflictError(SluiceError):
    code = "conflict"


class NotFoundError(SluiceError):
    code = "not_found"


class InvariantError(SluiceError):
    code = "invariant_violated"
