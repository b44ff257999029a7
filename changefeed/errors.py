"""The error tree. Every error of Sluice is one of these. Adapters translate the errors of their libraries.

SluiceError
├── RetryableError          the cause may go away by itself: wait `retry_after`, then retry
│   ├── coordination_unavailable    etcd does not answer
│   │   └── outcome_unknown             a transaction was sent to etcd, but no answer came
│   │       └── coordination_full           etcd is out of space: it serves reads and keeps leases alive, but refuses writes
│   ├── source_unavailable          the source does not answer, or has no primary
│   │   └── source_majority_stalled     its primary answers, but its majority does not move
│   ├── source_refused              authentication or privileges at the source: replication goes on when they are granted
│   ├── sink_unavailable            the target does not answer, refuses writes for now, or is busy
│   │   └── sink_majority_stalled       its primary takes writes, but its majority does not move
│   ├── sink_refused                authentication or privileges at the target
│   ├── pipeline_unavailable        Spark lost a worker or an executor, or cannot start
│   ├── task_overdue                a window or a step of a copy takes so long that something may hold it: a row's value, or a server
│   ├── users_not_replicated        users or roles of the source could not be read, or written at the target: tables go on
│   ├── table_unknown               a row is of a table of which no DDL is known: the owner records it, and all others go on
│   └── update_waits                tables are taken in and out when an open DDL is done, which waits for a user: those that are there go on
├── PermanentError          a user has to act
│   ├── coordination_refused        authentication or privileges in etcd
│   ├── record_unreadable           a value in etcd is damaged, or written by a newer version of Sluice
│   ├── history_lost                the position is no longer in the source's oplog
│   ├── messages_lost               the sink has lost what it had of a table: somebody deleted its topic and created it again
│   ├── event_too_large             a change is too large for a change stream of the source, even in parts
│   ├── image_missing               messages have to show a document that the source does not have any more
│   ├── source_unsupported          the source lacks a needed feature (a standalone server, an old version)
│   ├── ddl_refused                 the target refused a DDL
│   ├── ddl_unsupported             the sink cannot express a DDL
│   ├── definitions_too_large   the definitions of a changefeed's tables are more than etcd should hold
│   ├── ddl_ambiguous               after a crash the downstream is neither as before a DDL nor as after it
│   ├── name_taken                  a table comes under the name of another one downstream, and no route asks for that
│   ├── target_occupied             the collection that a copy would fill already holds documents
│   ├── duplicate_id                two shards of the source have a document with the same _id in one table
│   ├── row_rejected                the target refused a row because of its content
│   ├── divergence                  an event does not fit the downstream's document
│   ├── wrong_state                 the state of a changefeed or node does not allow the request
│   ├── not_authenticated           a caller of the admin API has not proven its identity
│   └── not_permitted               a caller of the admin API lacks the right for the request
├── FencedError             fenced: this process has lost its epoch; it stops at once
├── ConfigurationError      configuration_invalid: the user's configuration is wrong; the error lists every problem
├── ConflictError           conflict: another writer changed the same record first
├── NotFoundError           not_found: the named object does not exist
└── InvariantError          invariant_violated: a bug in Sluice; nothing goes on after it
"""

from __future__ import annotations

from collections.abc import Sequence

from sluice_client.feed_errors import (
    ConfigurationError,
    InvariantError,
    NotFoundError,
    PermanentError,
    RetryableError,
    RowRejected,
    SinkRefused,
    SinkUnavailable,
    SluiceError,
)

__all__ = [
    "ConfigurationError",
    "InvariantError",
    "NotFoundError",
    "PermanentError",
    "RetryableError",
    "RowRejected",
    "SinkRefused",
    "SinkUnavailable",
    "SluiceError",
]
"""Those of the client's part of the tree, which every module imports from here."""


class CoordinationUnavailable(RetryableError):
    code = "coordination_unavailable"


class OutcomeUnknown(CoordinationUnavailable):
    """The transaction may have happened, or may still happen, until `FencedStore.settle` has returned."""

    code = "outcome_unknown"


class CoordinationFull(OutcomeUnknown):
    """etcd may have applied a write that it refused, if the write was in progress when it ran out of space."""

    code = "coordination_full"


class SourceUnavailable(RetryableError):
    code = "source_unavailable"


class SourceMajorityStalled(SourceUnavailable):
    code = "source_majority_stalled"


class SourceRefused(RetryableError):
    code = "source_refused"


class SinkMajorityStalled(SinkUnavailable):
    code = "sink_majority_stalled"


class PipelineUnavailable(RetryableError):
    code = "pipeline_unavailable"


class TaskOverdue(RetryableError):
    """It goes on: a warning."""

    code = "task_overdue"


class UsersNotReplicated(RetryableError):
    """Tables are not concerned, and go on."""

    code = "users_not_replicated"


class TableUnknown(RetryableError):
    """About `view_id` of its name: there is no other identity. Rows go on when the owner has recorded that nobody can follow what has the name."""

    code = "table_unknown"


class UpdateWaits(RetryableError):
    """Tables are taken in and out later. Those that are there go on."""

    code = "update_waits"


class CoordinationRefused(PermanentError):
    code = "coordination_refused"


class RecordUnreadable(PermanentError):
    """`problems`: what is wrong with its fields, if it has the form of a record."""

    code = "record_unreadable"

    def __init__(self, message: str, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class HistoryLost(PermanentError):
    code = "history_lost"


class EventTooLarge(PermanentError):
    code = "event_too_large"


class ImageMissing(PermanentError):
    """Of a change, the source does not have the document that messages have to show."""

    code = "image_missing"


class MessagesLost(PermanentError):
    """The sink has lost what it had of a table."""

    code = "messages_lost"


class SourceUnsupported(PermanentError):
    code = "source_unsupported"


class DdlRefused(PermanentError):
    code = "ddl_refused"


class DdlUnsupported(PermanentError):
    code = "ddl_unsupported"


class DefinitionsTooLarge(PermanentError):
    code = "definitions_too_large"


class DdlAmbiguous(PermanentError):
    code = "ddl_ambiguous"


class NameTaken(PermanentError):
    code = "name_taken"


class TargetOccupied(PermanentError):
    code = "target_occupied"


class DuplicateId(PermanentError):
    """No single target table can have both."""

    code = "duplicate_id"


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


class ConflictError(SluiceError):
    code = "conflict"
