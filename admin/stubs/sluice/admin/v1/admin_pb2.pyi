import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ChangefeedState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHANGEFEED_STATE_UNSPECIFIED: _ClassVar[ChangefeedState]
    CHANGEFEED_STATE_NORMAL: _ClassVar[ChangefeedState]
    CHANGEFEED_STATE_WARNING: _ClassVar[ChangefeedState]
    CHANGEFEED_STATE_PENDING: _ClassVar[ChangefeedState]
    CHANGEFEED_STATE_STOPPED: _ClassVar[ChangefeedState]
    CHANGEFEED_STATE_FAILED: _ClassVar[ChangefeedState]
    CHANGEFEED_STATE_FINISHED: _ClassVar[ChangefeedState]
    CHANGEFEED_STATE_REMOVED: _ClassVar[ChangefeedState]
    CHANGEFEED_STATE_UNREADABLE: _ClassVar[ChangefeedState]

class DesiredState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DESIRED_STATE_UNSPECIFIED: _ClassVar[DesiredState]
    DESIRED_STATE_RUNNING: _ClassVar[DesiredState]
    DESIRED_STATE_PAUSED: _ClassVar[DesiredState]
    DESIRED_STATE_REMOVED: _ClassVar[DesiredState]
CHANGEFEED_STATE_UNSPECIFIED: ChangefeedState
CHANGEFEED_STATE_NORMAL: ChangefeedState
CHANGEFEED_STATE_WARNING: ChangefeedState
CHANGEFEED_STATE_PENDING: ChangefeedState
CHANGEFEED_STATE_STOPPED: ChangefeedState
CHANGEFEED_STATE_FAILED: ChangefeedState
CHANGEFEED_STATE_FINISHED: ChangefeedState
CHANGEFEED_STATE_REMOVED: ChangefeedState
CHANGEFEED_STATE_UNREADABLE: ChangefeedState
DESIRED_STATE_UNSPECIFIED: DesiredState
DESIRED_STATE_RUNNING: DesiredState
DESIRED_STATE_PAUSED: DesiredState
DESIRED_STATE_REMOVED: DesiredState

class ErrorDetails(_message.Message):
    __slots__ = ("code", "problems")
    CODE_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    code: str
    problems: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, code: _Optional[str] = ..., problems: _Optional[_Iterable[str]] = ...) -> None: ...

class ErrorReport(_message.Message):
    __slots__ = ("code", "message", "at")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    at: _timestamp_pb2.Timestamp
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Changefeed(_message.Message):
    __slots__ = ("id", "configuration", "version", "desired", "state", "obeyed", "checkpoint", "resolved", "lag", "error", "created_at", "retry_at", "tables", "held_tables", "open_ddls", "copy", "warnings", "rows", "capture", "capture_reason", "stopped_tables", "stopped", "slowest", "open_letters", "copies", "copy_limit", "apply_limit", "estimate", "delay", "still_on", "attention", "as_of", "sync_points")
    ID_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DESIRED_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OBEYED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    RETRY_AT_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    HELD_TABLES_FIELD_NUMBER: _ClassVar[int]
    OPEN_DDLS_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_REASON_FIELD_NUMBER: _ClassVar[int]
    STOPPED_TABLES_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    SLOWEST_FIELD_NUMBER: _ClassVar[int]
    OPEN_LETTERS_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    COPY_LIMIT_FIELD_NUMBER: _ClassVar[int]
    APPLY_LIMIT_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    STILL_ON_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    SYNC_POINTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    configuration: str
    version: int
    desired: DesiredState
    state: ChangefeedState
    obeyed: bool
    checkpoint: str
    resolved: str
    lag: _duration_pb2.Duration
    error: ErrorReport
    created_at: _timestamp_pb2.Timestamp
    retry_at: _timestamp_pb2.Timestamp
    tables: int
    held_tables: int
    open_ddls: int
    copy: CopyProgress
    warnings: _containers.RepeatedScalarFieldContainer[str]
    rows: RowCounts
    capture: str
    capture_reason: str
    stopped_tables: int
    stopped: _containers.RepeatedCompositeFieldContainer[StoppedTable]
    slowest: _containers.RepeatedCompositeFieldContainer[TableLag]
    open_letters: LetterTotals
    copies: _containers.RepeatedCompositeFieldContainer[TableCopy]
    copy_limit: str
    apply_limit: str
    estimate: CopyEstimate
    delay: str
    still_on: _containers.RepeatedScalarFieldContainer[str]
    attention: str
    as_of: _timestamp_pb2.Timestamp
    sync_points: SyncPoints
    def __init__(self, id: _Optional[str] = ..., configuration: _Optional[str] = ..., version: _Optional[int] = ..., desired: _Optional[_Union[DesiredState, str]] = ..., state: _Optional[_Union[ChangefeedState, str]] = ..., obeyed: _Optional[bool] = ..., checkpoint: _Optional[str] = ..., resolved: _Optional[str] = ..., lag: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., error: _Optional[_Union[ErrorReport, _Mapping]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., retry_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., tables: _Optional[int] = ..., held_tables: _Optional[int] = ..., open_ddls: _Optional[int] = ..., copy: _Optional[_Union[CopyProgress, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ..., rows: _Optional[_Union[RowCounts, _Mapping]] = ..., capture: _Optional[str] = ..., capture_reason: _Optional[str] = ..., stopped_tables: _Optional[int] = ..., stopped: _Optional[_Iterable[_Union[StoppedTable, _Mapping]]] = ..., slowest: _Optional[_Iterable[_Union[TableLag, _Mapping]]] = ..., open_letters: _Optional[_Union[LetterTotals, _Mapping]] = ..., copies: _Optional[_Iterable[_Union[TableCopy, _Mapping]]] = ..., copy_limit: _Optional[str] = ..., apply_limit: _Optional[str] = ..., estimate: _Optional[_Union[CopyEstimate, _Mapping]] = ..., delay: _Optional[str] = ..., still_on: _Optional[_Iterable[str]] = ..., attention: _Optional[str] = ..., as_of: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., sync_points: _Optional[_Union[SyncPoints, _Mapping]] = ...) -> None: ...

class SyncPoint(_message.Message):
    __slots__ = ("source_ts", "target_ts", "made_at", "excepted", "readable_until", "verified")
    SOURCE_TS_FIELD_NUMBER: _ClassVar[int]
    TARGET_TS_FIELD_NUMBER: _ClassVar[int]
    MADE_AT_FIELD_NUMBER: _ClassVar[int]
    EXCEPTED_FIELD_NUMBER: _ClassVar[int]
    READABLE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_FIELD_NUMBER: _ClassVar[int]
    source_ts: str
    target_ts: str
    made_at: _timestamp_pb2.Timestamp
    excepted: _containers.RepeatedCompositeFieldContainer[ExceptedTable]
    readable_until: _timestamp_pb2.Timestamp
    verified: ComparedPart
    def __init__(self, source_ts: _Optional[str] = ..., target_ts: _Optional[str] = ..., made_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., excepted: _Optional[_Iterable[_Union[ExceptedTable, _Mapping]]] = ..., readable_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., verified: _Optional[_Union[ComparedPart, _Mapping]] = ...) -> None: ...

class ExceptedTable(_message.Message):
    __slots__ = ("source", "target", "why")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    source: _containers.RepeatedScalarFieldContainer[str]
    target: _containers.RepeatedScalarFieldContainer[str]
    why: str
    def __init__(self, source: _Optional[_Iterable[str]] = ..., target: _Optional[_Iterable[str]] = ..., why: _Optional[str] = ...) -> None: ...

class SyncPoints(_message.Message):
    __slots__ = ("newest", "made", "whole", "missed", "missed_because", "held", "verification")
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    MADE_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    MISSED_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    VERIFICATION_FIELD_NUMBER: _ClassVar[int]
    newest: SyncPoint
    made: int
    whole: int
    missed: int
    missed_because: str
    held: _duration_pb2.Duration
    verification: ContinuousVerification
    def __init__(self, newest: _Optional[_Union[SyncPoint, _Mapping]] = ..., made: _Optional[int] = ..., whole: _Optional[int] = ..., missed: _Optional[int] = ..., missed_because: _Optional[str] = ..., held: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., verification: _Optional[_Union[ContinuousVerification, _Mapping]] = ...) -> None: ...

class ContinuousVerification(_message.Message):
    __slots__ = ("at", "present", "last")
    AT_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    at: str
    present: VerifyPass
    last: VerifyPass
    def __init__(self, at: _Optional[str] = ..., present: _Optional[_Union[VerifyPass, _Mapping]] = ..., last: _Optional[_Union[VerifyPass, _Mapping]] = ...) -> None: ...

class VerifyPass(_message.Message):
    __slots__ = ("number", "began_at", "ended_at", "ends_by", "due_bytes", "done", "first_at", "first_in")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    BEGAN_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDS_BY_FIELD_NUMBER: _ClassVar[int]
    DUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    FIRST_AT_FIELD_NUMBER: _ClassVar[int]
    FIRST_IN_FIELD_NUMBER: _ClassVar[int]
    number: int
    began_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    ends_by: _timestamp_pb2.Timestamp
    due_bytes: int
    done: ComparedPart
    first_at: str
    first_in: str
    def __init__(self, number: _Optional[int] = ..., began_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ends_by: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., due_bytes: _Optional[int] = ..., done: _Optional[_Union[ComparedPart, _Mapping]] = ..., first_at: _Optional[str] = ..., first_in: _Optional[str] = ...) -> None: ...

class ComparedPart(_message.Message):
    __slots__ = ("tables", "documents", "bytes", "different", "reordered", "not_compared")
    TABLES_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DIFFERENT_FIELD_NUMBER: _ClassVar[int]
    REORDERED_FIELD_NUMBER: _ClassVar[int]
    NOT_COMPARED_FIELD_NUMBER: _ClassVar[int]
    tables: int
    documents: int
    bytes: int
    different: int
    reordered: int
    not_compared: int
    def __init__(self, tables: _Optional[int] = ..., documents: _Optional[int] = ..., bytes: _Optional[int] = ..., different: _Optional[int] = ..., reordered: _Optional[int] = ..., not_compared: _Optional[int] = ...) -> None: ...

class ListSyncPointsRequest(_message.Message):
    __slots__ = ("id", "most")
    ID_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    id: str
    most: int
    def __init__(self, id: _Optional[str] = ..., most: _Optional[int] = ...) -> None: ...

class ListSyncPointsResponse(_message.Message):
    __slots__ = ("points",)
    POINTS_FIELD_NUMBER: _ClassVar[int]
    points: _containers.RepeatedCompositeFieldContainer[SyncPoint]
    def __init__(self, points: _Optional[_Iterable[_Union[SyncPoint, _Mapping]]] = ...) -> None: ...

class MakeSyncPointRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class MakeSyncPointResponse(_message.Message):
    __slots__ = ("point",)
    POINT_FIELD_NUMBER: _ClassVar[int]
    point: SyncPoint
    def __init__(self, point: _Optional[_Union[SyncPoint, _Mapping]] = ...) -> None: ...

class TableLag(_message.Message):
    __slots__ = ("id", "name", "lag")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    lag: _duration_pb2.Duration
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., lag: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class LetterTotals(_message.Message):
    __slots__ = ("count", "bytes")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    count: int
    bytes: int
    def __init__(self, count: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class StoppedTable(_message.Message):
    __slots__ = ("id", "name", "trouble", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    trouble: str
    error: ErrorReport
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., trouble: _Optional[str] = ..., error: _Optional[_Union[ErrorReport, _Mapping]] = ...) -> None: ...

class RowCounts(_message.Message):
    __slots__ = ("skipped", "repaired", "rejected", "applied")
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    skipped: int
    repaired: int
    rejected: int
    applied: int
    def __init__(self, skipped: _Optional[int] = ..., repaired: _Optional[int] = ..., rejected: _Optional[int] = ..., applied: _Optional[int] = ...) -> None: ...

class CopyProgress(_message.Message):
    __slots__ = ("documents", "bytes", "chunks_done", "chunks", "tables", "tables_done", "share", "left", "documents_left", "bytes_left", "documents_rate", "bytes_rate")
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_DONE_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    TABLES_DONE_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_LEFT_FIELD_NUMBER: _ClassVar[int]
    BYTES_LEFT_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_RATE_FIELD_NUMBER: _ClassVar[int]
    BYTES_RATE_FIELD_NUMBER: _ClassVar[int]
    documents: int
    bytes: int
    chunks_done: int
    chunks: int
    tables: int
    tables_done: int
    share: float
    left: _duration_pb2.Duration
    documents_left: int
    bytes_left: int
    documents_rate: float
    bytes_rate: float
    def __init__(self, documents: _Optional[int] = ..., bytes: _Optional[int] = ..., chunks_done: _Optional[int] = ..., chunks: _Optional[int] = ..., tables: _Optional[int] = ..., tables_done: _Optional[int] = ..., share: _Optional[float] = ..., left: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., documents_left: _Optional[int] = ..., bytes_left: _Optional[int] = ..., documents_rate: _Optional[float] = ..., bytes_rate: _Optional[float] = ...) -> None: ...

class TableCopy(_message.Message):
    __slots__ = ("id", "name", "copy", "kind")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    copy: CopyProgress
    kind: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., copy: _Optional[_Union[CopyProgress, _Mapping]] = ..., kind: _Optional[str] = ...) -> None: ...

class CreateChangefeedRequest(_message.Message):
    __slots__ = ("configuration", "unless_removed")
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    UNLESS_REMOVED_FIELD_NUMBER: _ClassVar[int]
    configuration: str
    unless_removed: bool
    def __init__(self, configuration: _Optional[str] = ..., unless_removed: _Optional[bool] = ...) -> None: ...

class GetReadinessRequest(_message.Message):
    __slots__ = ("id", "within", "leave_stopped", "reverse_as", "block_writes")
    ID_FIELD_NUMBER: _ClassVar[int]
    WITHIN_FIELD_NUMBER: _ClassVar[int]
    LEAVE_STOPPED_FIELD_NUMBER: _ClassVar[int]
    REVERSE_AS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_WRITES_FIELD_NUMBER: _ClassVar[int]
    id: str
    within: _duration_pb2.Duration
    leave_stopped: bool
    reverse_as: str
    block_writes: bool
    def __init__(self, id: _Optional[str] = ..., within: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., leave_stopped: _Optional[bool] = ..., reverse_as: _Optional[str] = ..., block_writes: _Optional[bool] = ...) -> None: ...

class Readiness(_message.Message):
    __slots__ = ("ready", "takes", "findings")
    READY_FIELD_NUMBER: _ClassVar[int]
    TAKES_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    ready: bool
    takes: _duration_pb2.Duration
    findings: _containers.RepeatedCompositeFieldContainer[ReadinessFinding]
    def __init__(self, ready: _Optional[bool] = ..., takes: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., findings: _Optional[_Iterable[_Union[ReadinessFinding, _Mapping]]] = ...) -> None: ...

class ReadinessFinding(_message.Message):
    __slots__ = ("kind", "message", "in_the_way")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    IN_THE_WAY_FIELD_NUMBER: _ClassVar[int]
    kind: str
    message: str
    in_the_way: bool
    def __init__(self, kind: _Optional[str] = ..., message: _Optional[str] = ..., in_the_way: _Optional[bool] = ...) -> None: ...

class PlanChangefeedRequest(_message.Message):
    __slots__ = ("create", "update")
    CREATE_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    create: CreateChangefeedRequest
    update: UpdateChangefeedRequest
    def __init__(self, create: _Optional[_Union[CreateChangefeedRequest, _Mapping]] = ..., update: _Optional[_Union[UpdateChangefeedRequest, _Mapping]] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("problems", "warnings", "capture", "capture_reason", "estimate", "tables", "version", "options", "notes")
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_REASON_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    problems: _containers.RepeatedScalarFieldContainer[str]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    capture: str
    capture_reason: str
    estimate: CopyEstimate
    tables: _containers.RepeatedCompositeFieldContainer[PlannedTable]
    version: int
    options: _containers.RepeatedCompositeFieldContainer[ChangedOption]
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, problems: _Optional[_Iterable[str]] = ..., warnings: _Optional[_Iterable[str]] = ..., capture: _Optional[str] = ..., capture_reason: _Optional[str] = ..., estimate: _Optional[_Union[CopyEstimate, _Mapping]] = ..., tables: _Optional[_Iterable[_Union[PlannedTable, _Mapping]]] = ..., version: _Optional[int] = ..., options: _Optional[_Iterable[_Union[ChangedOption, _Mapping]]] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class PlannedTable(_message.Message):
    __slots__ = ("name", "target", "kind", "documents", "bytes", "chunks", "indexes", "at_target", "effect", "target_before")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    AT_TARGET_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    TARGET_BEFORE_FIELD_NUMBER: _ClassVar[int]
    name: str
    target: str
    kind: str
    documents: int
    bytes: int
    chunks: int
    indexes: int
    at_target: str
    effect: str
    target_before: str
    def __init__(self, name: _Optional[str] = ..., target: _Optional[str] = ..., kind: _Optional[str] = ..., documents: _Optional[int] = ..., bytes: _Optional[int] = ..., chunks: _Optional[int] = ..., indexes: _Optional[int] = ..., at_target: _Optional[str] = ..., effect: _Optional[str] = ..., target_before: _Optional[str] = ...) -> None: ...

class CopyEstimate(_message.Message):
    __slots__ = ("documents", "bytes", "tables", "chunks", "takes", "read_rate", "send_rate", "limited", "oplog")
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    TAKES_FIELD_NUMBER: _ClassVar[int]
    READ_RATE_FIELD_NUMBER: _ClassVar[int]
    SEND_RATE_FIELD_NUMBER: _ClassVar[int]
    LIMITED_FIELD_NUMBER: _ClassVar[int]
    OPLOG_FIELD_NUMBER: _ClassVar[int]
    documents: int
    bytes: int
    tables: int
    chunks: int
    takes: _duration_pb2.Duration
    read_rate: float
    send_rate: float
    limited: bool
    oplog: _duration_pb2.Duration
    def __init__(self, documents: _Optional[int] = ..., bytes: _Optional[int] = ..., tables: _Optional[int] = ..., chunks: _Optional[int] = ..., takes: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., read_rate: _Optional[float] = ..., send_rate: _Optional[float] = ..., limited: _Optional[bool] = ..., oplog: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CompareChangefeedRequest(_message.Message):
    __slots__ = ("configuration",)
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    configuration: str
    def __init__(self, configuration: _Optional[str] = ...) -> None: ...

class CompareChangefeedResponse(_message.Message):
    __slots__ = ("present", "differences", "removed_at")
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    REMOVED_AT_FIELD_NUMBER: _ClassVar[int]
    present: Changefeed
    differences: _containers.RepeatedScalarFieldContainer[str]
    removed_at: _timestamp_pb2.Timestamp
    def __init__(self, present: _Optional[_Union[Changefeed, _Mapping]] = ..., differences: _Optional[_Iterable[str]] = ..., removed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetChangefeedRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ExportedChangefeed(_message.Message):
    __slots__ = ("configuration", "variables")
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_FIELD_NUMBER: _ClassVar[int]
    configuration: str
    variables: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, configuration: _Optional[str] = ..., variables: _Optional[_Iterable[str]] = ...) -> None: ...

class ListChangefeedsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListChangefeedsResponse(_message.Message):
    __slots__ = ("changefeeds",)
    CHANGEFEEDS_FIELD_NUMBER: _ClassVar[int]
    changefeeds: _containers.RepeatedCompositeFieldContainer[Changefeed]
    def __init__(self, changefeeds: _Optional[_Iterable[_Union[Changefeed, _Mapping]]] = ...) -> None: ...

class UpdateChangefeedRequest(_message.Message):
    __slots__ = ("id", "configuration", "expected_version", "capture", "routes", "copy_limit", "apply_limit", "delay", "tables")
    ID_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    CAPTURE_FIELD_NUMBER: _ClassVar[int]
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    COPY_LIMIT_FIELD_NUMBER: _ClassVar[int]
    APPLY_LIMIT_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    id: str
    configuration: str
    expected_version: int
    capture: str
    routes: str
    copy_limit: str
    apply_limit: str
    delay: str
    tables: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., configuration: _Optional[str] = ..., expected_version: _Optional[int] = ..., capture: _Optional[str] = ..., routes: _Optional[str] = ..., copy_limit: _Optional[str] = ..., apply_limit: _Optional[str] = ..., delay: _Optional[str] = ..., tables: _Optional[_Iterable[str]] = ...) -> None: ...

class ChangedOption(_message.Message):
    __slots__ = ("path", "before", "now")
    PATH_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    path: str
    before: str
    now: str
    def __init__(self, path: _Optional[str] = ..., before: _Optional[str] = ..., now: _Optional[str] = ...) -> None: ...

class PauseChangefeedRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ResumeChangefeedRequest(_message.Message):
    __slots__ = ("id", "start")
    ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    id: str
    start: str
    def __init__(self, id: _Optional[str] = ..., start: _Optional[str] = ...) -> None: ...

class RemoveChangefeedRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class RemoveChangefeedResponse(_message.Message):
    __slots__ = ("left",)
    LEFT_FIELD_NUMBER: _ClassVar[int]
    left: str
    def __init__(self, left: _Optional[str] = ...) -> None: ...

class FinalizeChangefeedRequest(_message.Message):
    __slots__ = ("id", "leave_stopped", "block_writes", "reverse_as", "give_up")
    ID_FIELD_NUMBER: _ClassVar[int]
    LEAVE_STOPPED_FIELD_NUMBER: _ClassVar[int]
    BLOCK_WRITES_FIELD_NUMBER: _ClassVar[int]
    REVERSE_AS_FIELD_NUMBER: _ClassVar[int]
    GIVE_UP_FIELD_NUMBER: _ClassVar[int]
    id: str
    leave_stopped: bool
    block_writes: bool
    reverse_as: str
    give_up: bool
    def __init__(self, id: _Optional[str] = ..., leave_stopped: _Optional[bool] = ..., block_writes: _Optional[bool] = ..., reverse_as: _Optional[str] = ..., give_up: _Optional[bool] = ...) -> None: ...

class FinalizeProgress(_message.Message):
    __slots__ = ("checkpoint", "target", "left", "done", "restored", "problems", "block_lifted_by", "reverse", "starts", "foreign", "given_up", "block_lifted")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    RESTORED_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_LIFTED_BY_FIELD_NUMBER: _ClassVar[int]
    REVERSE_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    FOREIGN_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    BLOCK_LIFTED_FIELD_NUMBER: _ClassVar[int]
    checkpoint: str
    target: str
    left: _duration_pb2.Duration
    done: bool
    restored: int
    problems: _containers.RepeatedScalarFieldContainer[str]
    block_lifted_by: str
    reverse: str
    starts: str
    foreign: _containers.RepeatedScalarFieldContainer[str]
    given_up: bool
    block_lifted: bool
    def __init__(self, checkpoint: _Optional[str] = ..., target: _Optional[str] = ..., left: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., done: _Optional[bool] = ..., restored: _Optional[int] = ..., problems: _Optional[_Iterable[str]] = ..., block_lifted_by: _Optional[str] = ..., reverse: _Optional[str] = ..., starts: _Optional[str] = ..., foreign: _Optional[_Iterable[str]] = ..., given_up: _Optional[bool] = ..., block_lifted: _Optional[bool] = ...) -> None: ...

class WatchChangefeedRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ListHistoryRequest(_message.Message):
    __slots__ = ("changefeed",)
    CHANGEFEED_FIELD_NUMBER: _ClassVar[int]
    changefeed: str
    def __init__(self, changefeed: _Optional[str] = ...) -> None: ...

class HistoryEntry(_message.Message):
    __slots__ = ("at", "kind", "action", "by", "role", "address", "subject", "before", "after", "note")
    AT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    at: _timestamp_pb2.Timestamp
    kind: str
    action: str
    by: str
    role: str
    address: str
    subject: str
    before: str
    after: str
    note: str
    def __init__(self, at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., kind: _Optional[str] = ..., action: _Optional[str] = ..., by: _Optional[str] = ..., role: _Optional[str] = ..., address: _Optional[str] = ..., subject: _Optional[str] = ..., before: _Optional[str] = ..., after: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("id", "name", "admin_address", "roles", "version", "started_at", "owner", "draining", "tables", "not_ready", "spark", "etcd_writable", "source_reachable", "target_reachable", "last_error", "last_error_changefeed", "lag", "as_of")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADMIN_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    NOT_READY_FIELD_NUMBER: _ClassVar[int]
    SPARK_FIELD_NUMBER: _ClassVar[int]
    ETCD_WRITABLE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_REACHABLE_FIELD_NUMBER: _ClassVar[int]
    TARGET_REACHABLE_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_CHANGEFEED_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    admin_address: str
    roles: _containers.RepeatedScalarFieldContainer[str]
    version: str
    started_at: _timestamp_pb2.Timestamp
    owner: bool
    draining: bool
    tables: int
    not_ready: str
    spark: bool
    etcd_writable: bool
    source_reachable: bool
    target_reachable: bool
    last_error: ErrorReport
    last_error_changefeed: str
    lag: _duration_pb2.Duration
    as_of: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., admin_address: _Optional[str] = ..., roles: _Optional[_Iterable[str]] = ..., version: _Optional[str] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., owner: _Optional[bool] = ..., draining: _Optional[bool] = ..., tables: _Optional[int] = ..., not_ready: _Optional[str] = ..., spark: _Optional[bool] = ..., etcd_writable: _Optional[bool] = ..., source_reachable: _Optional[bool] = ..., target_reachable: _Optional[bool] = ..., last_error: _Optional[_Union[ErrorReport, _Mapping]] = ..., last_error_changefeed: _Optional[str] = ..., lag: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., as_of: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListNodesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNodesResponse(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    def __init__(self, nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ...) -> None: ...

class DrainNodeRequest(_message.Message):
    __slots__ = ("id", "force")
    ID_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    id: str
    force: bool
    def __init__(self, id: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class UndrainNodeRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ResignOwnerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResignOwnerResponse(_message.Message):
    __slots__ = ("former_owner",)
    FORMER_OWNER_FIELD_NUMBER: _ClassVar[int]
    former_owner: str
    def __init__(self, former_owner: _Optional[str] = ...) -> None: ...

class Table(_message.Message):
    __slots__ = ("id", "name", "target", "kind", "node", "checkpoint", "barrier", "held", "leaving", "schema_valid_from", "copy", "trouble", "error", "state", "lag", "target_age", "rows_to_repair", "as_of")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VALID_FROM_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    TARGET_AGE_FIELD_NUMBER: _ClassVar[int]
    ROWS_TO_REPAIR_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    target: str
    kind: str
    node: str
    checkpoint: str
    barrier: str
    held: bool
    leaving: bool
    schema_valid_from: str
    copy: CopyProgress
    trouble: str
    error: ErrorReport
    state: str
    lag: _duration_pb2.Duration
    target_age: _duration_pb2.Duration
    rows_to_repair: int
    as_of: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., target: _Optional[str] = ..., kind: _Optional[str] = ..., node: _Optional[str] = ..., checkpoint: _Optional[str] = ..., barrier: _Optional[str] = ..., held: _Optional[bool] = ..., leaving: _Optional[bool] = ..., schema_valid_from: _Optional[str] = ..., copy: _Optional[_Union[CopyProgress, _Mapping]] = ..., trouble: _Optional[str] = ..., error: _Optional[_Union[ErrorReport, _Mapping]] = ..., state: _Optional[str] = ..., lag: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., target_age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., rows_to_repair: _Optional[int] = ..., as_of: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListTablesRequest(_message.Message):
    __slots__ = ("changefeed",)
    CHANGEFEED_FIELD_NUMBER: _ClassVar[int]
    changefeed: str
    def __init__(self, changefeed: _Optional[str] = ...) -> None: ...

class TablePage(_message.Message):
    __slots__ = ("tables",)
    TABLES_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedCompositeFieldContainer[Table]
    def __init__(self, tables: _Optional[_Iterable[_Union[Table, _Mapping]]] = ...) -> None: ...

class MoveTableRequest(_message.Message):
    __slots__ = ("changefeed", "table", "node")
    CHANGEFEED_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    changefeed: str
    table: str
    node: str
    def __init__(self, changefeed: _Optional[str] = ..., table: _Optional[str] = ..., node: _Optional[str] = ...) -> None: ...

class MoveTableResponse(_message.Message):
    __slots__ = ("table", "node")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    table: str
    node: str
    def __init__(self, table: _Optional[str] = ..., node: _Optional[str] = ...) -> None: ...

class StopTableRequest(_message.Message):
    __slots__ = ("changefeed", "table")
    CHANGEFEED_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    changefeed: str
    table: str
    def __init__(self, changefeed: _Optional[str] = ..., table: _Optional[str] = ...) -> None: ...

class ResumeTableRequest(_message.Message):
    __slots__ = ("changefeed", "table")
    CHANGEFEED_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    changefeed: str
    table: str
    def __init__(self, changefeed: _Optional[str] = ..., table: _Optional[str] = ...) -> None: ...

class RecopyTablesRequest(_message.Message):
    __slots__ = ("changefeed", "tables", "dry_run")
    CHANGEFEED_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    changefeed: str
    tables: _containers.RepeatedScalarFieldContainer[str]
    dry_run: bool
    def __init__(self, changefeed: _Optional[str] = ..., tables: _Optional[_Iterable[str]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class RecopyTablesResponse(_message.Message):
    __slots__ = ("tables", "warnings")
    TABLES_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedCompositeFieldContainer[TableRecopy]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tables: _Optional[_Iterable[_Union[TableRecopy, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class TableRecopy(_message.Message):
    __slots__ = ("id", "name", "target", "bytes", "in_place")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    IN_PLACE_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    target: str
    bytes: int
    in_place: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., target: _Optional[str] = ..., bytes: _Optional[int] = ..., in_place: _Optional[str] = ...) -> None: ...

class RejectedRow(_message.Message):
    __slots__ = ("table", "table_id", "key", "first_position", "position", "first_rejected_at", "rejected_at", "tries", "error", "type", "retry_requested")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_REJECTED_AT_FIELD_NUMBER: _ClassVar[int]
    REJECTED_AT_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    RETRY_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    table: str
    table_id: str
    key: str
    first_position: str
    position: str
    first_rejected_at: _timestamp_pb2.Timestamp
    rejected_at: _timestamp_pb2.Timestamp
    tries: int
    error: str
    type: str
    retry_requested: bool
    def __init__(self, table: _Optional[str] = ..., table_id: _Optional[str] = ..., key: _Optional[str] = ..., first_position: _Optional[str] = ..., position: _Optional[str] = ..., first_rejected_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., rejected_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., tries: _Optional[int] = ..., error: _Optional[str] = ..., type: _Optional[str] = ..., retry_requested: _Optional[bool] = ...) -> None: ...

class ListRejectedRowsRequest(_message.Message):
    __slots__ = ("changefeed", "table")
    CHANGEFEED_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    changefeed: str
    table: str
    def __init__(self, changefeed: _Optional[str] = ..., table: _Optional[str] = ...) -> None: ...

class RetryRejectedRowsRequest(_message.Message):
    __slots__ = ("changefeed", "table", "keys")
    CHANGEFEED_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    changefeed: str
    table: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, changefeed: _Optional[str] = ..., table: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ...) -> None: ...

class RetryRejectedRowsResponse(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    def __init__(self, rows: _Optional[int] = ...) -> None: ...

class DropRejectedRowsRequest(_message.Message):
    __slots__ = ("changefeed", "table", "keys")
    CHANGEFEED_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    changefeed: str
    table: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, changefeed: _Optional[str] = ..., table: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ...) -> None: ...

class DropRejectedRowsResponse(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    def __init__(self, rows: _Optional[int] = ...) -> None: ...

class Ddl(_message.Message):
    __slots__ = ("position", "type", "table", "renamed_to", "state", "waits_for", "note", "seen_at", "executing_at", "done_at", "refused", "as_of")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    RENAMED_TO_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    SEEN_AT_FIELD_NUMBER: _ClassVar[int]
    EXECUTING_AT_FIELD_NUMBER: _ClassVar[int]
    DONE_AT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    position: str
    type: str
    table: str
    renamed_to: str
    state: str
    waits_for: str
    note: str
    seen_at: _timestamp_pb2.Timestamp
    executing_at: _timestamp_pb2.Timestamp
    done_at: _timestamp_pb2.Timestamp
    refused: ErrorReport
    as_of: _timestamp_pb2.Timestamp
    def __init__(self, position: _Optional[str] = ..., type: _Optional[str] = ..., table: _Optional[str] = ..., renamed_to: _Optional[str] = ..., state: _Optional[str] = ..., waits_for: _Optional[str] = ..., note: _Optional[str] = ..., seen_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., executing_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., done_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., refused: _Optional[_Union[ErrorReport, _Mapping]] = ..., as_of: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListDdlRequest(_message.Message):
    __slots__ = ("changefeed",)
    CHANGEFEED_FIELD_NUMBER: _ClassVar[int]
    changefeed: str
    def __init__(self, changefeed: _Optional[str] = ...) -> None: ...

class SkipDdlRequest(_message.Message):
    __slots__ = ("changefeed", "ddl")
    CHANGEFEED_FIELD_NUMBER: _ClassVar[int]
    DDL_FIELD_NUMBER: _ClassVar[int]
    changefeed: str
    ddl: str
    def __init__(self, changefeed: _Optional[str] = ..., ddl: _Optional[str] = ...) -> None: ...

class LogLevels(_message.Message):
    __slots__ = ("levels",)
    class LevelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    levels: _containers.ScalarMap[str, str]
    def __init__(self, levels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DiagnoseRequest(_message.Message):
    __slots__ = ("profile",)
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    profile: _duration_pb2.Duration
    def __init__(self, profile: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class DiagnosticFile(_message.Message):
    __slots__ = ("name", "content")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    content: bytes
    def __init__(self, name: _Optional[str] = ..., content: _Optional[bytes] = ...) -> None: ...

class GetClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Cluster(_message.Message):
    __slots__ = ("name", "owner", "nodes", "changefeeds", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    CHANGEFEEDS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    owner: str
    nodes: int
    changefeeds: int
    version: str
    def __init__(self, name: _Optional[str] = ..., owner: _Optional[str] = ..., nodes: _Optional[int] = ..., changefeeds: _Optional[int] = ..., version: _Optional[str] = ...) -> None: ...
