from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class VerifyOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERIFY_OUTCOME_UNSPECIFIED: _ClassVar[VerifyOutcome]
    VERIFY_OUTCOME_EQUAL: _ClassVar[VerifyOutcome]
    VERIFY_OUTCOME_NOT_COMPARABLE: _ClassVar[VerifyOutcome]
    VERIFY_OUTCOME_UNSETTLED: _ClassVar[VerifyOutcome]
    VERIFY_OUTCOME_DIFFERENT: _ClassVar[VerifyOutcome]
    VERIFY_OUTCOME_REORDERED: _ClassVar[VerifyOutcome]

class DifferenceKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DIFFERENCE_KIND_UNSPECIFIED: _ClassVar[DifferenceKind]
    DIFFERENCE_KIND_MISSING: _ClassVar[DifferenceKind]
    DIFFERENCE_KIND_EXTRA: _ClassVar[DifferenceKind]
    DIFFERENCE_KIND_CHANGED: _ClassVar[DifferenceKind]
    DIFFERENCE_KIND_UNSETTLED: _ClassVar[DifferenceKind]
    DIFFERENCE_KIND_REORDERED: _ClassVar[DifferenceKind]
VERIFY_OUTCOME_UNSPECIFIED: VerifyOutcome
VERIFY_OUTCOME_EQUAL: VerifyOutcome
VERIFY_OUTCOME_NOT_COMPARABLE: VerifyOutcome
VERIFY_OUTCOME_UNSETTLED: VerifyOutcome
VERIFY_OUTCOME_DIFFERENT: VerifyOutcome
VERIFY_OUTCOME_REORDERED: VerifyOutcome
DIFFERENCE_KIND_UNSPECIFIED: DifferenceKind
DIFFERENCE_KIND_MISSING: DifferenceKind
DIFFERENCE_KIND_EXTRA: DifferenceKind
DIFFERENCE_KIND_CHANGED: DifferenceKind
DIFFERENCE_KIND_UNSETTLED: DifferenceKind
DIFFERENCE_KIND_REORDERED: DifferenceKind

class VerifyChangefeedRequest(_message.Message):
    __slots__ = ("changefeed", "tables", "max_differences", "parallelism", "ignore_field_order", "repair", "at", "show")
    CHANGEFEED_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    MAX_DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    IGNORE_FIELD_ORDER_FIELD_NUMBER: _ClassVar[int]
    REPAIR_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    SHOW_FIELD_NUMBER: _ClassVar[int]
    changefeed: str
    tables: _containers.RepeatedScalarFieldContainer[str]
    max_differences: int
    parallelism: int
    ignore_field_order: bool
    repair: bool
    at: str
    show: bool
    def __init__(self, changefeed: _Optional[str] = ..., tables: _Optional[_Iterable[str]] = ..., max_differences: _Optional[int] = ..., parallelism: _Optional[int] = ..., ignore_field_order: _Optional[bool] = ..., repair: _Optional[bool] = ..., at: _Optional[str] = ..., show: _Optional[bool] = ...) -> None: ...

class VerifyEvent(_message.Message):
    __slots__ = ("progress", "table", "summary")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    progress: VerifyProgress
    table: TableVerification
    summary: VerifySummary
    def __init__(self, progress: _Optional[_Union[VerifyProgress, _Mapping]] = ..., table: _Optional[_Union[TableVerification, _Mapping]] = ..., summary: _Optional[_Union[VerifySummary, _Mapping]] = ...) -> None: ...

class VerifyProgress(_message.Message):
    __slots__ = ("tables", "tables_done", "ranges", "ranges_done", "documents")
    TABLES_FIELD_NUMBER: _ClassVar[int]
    TABLES_DONE_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    RANGES_DONE_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    tables: int
    tables_done: int
    ranges: int
    ranges_done: int
    documents: int
    def __init__(self, tables: _Optional[int] = ..., tables_done: _Optional[int] = ..., ranges: _Optional[int] = ..., ranges_done: _Optional[int] = ..., documents: _Optional[int] = ...) -> None: ...

class TableVerification(_message.Message):
    __slots__ = ("name", "sources", "outcome", "aspects", "documents")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ASPECTS_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    sources: _containers.RepeatedScalarFieldContainer[str]
    outcome: VerifyOutcome
    aspects: _containers.RepeatedCompositeFieldContainer[AspectVerification]
    documents: DocumentsVerification
    def __init__(self, name: _Optional[str] = ..., sources: _Optional[_Iterable[str]] = ..., outcome: _Optional[_Union[VerifyOutcome, str]] = ..., aspects: _Optional[_Iterable[_Union[AspectVerification, _Mapping]]] = ..., documents: _Optional[_Union[DocumentsVerification, _Mapping]] = ...) -> None: ...

class AspectVerification(_message.Message):
    __slots__ = ("aspect", "outcome", "details")
    ASPECT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    aspect: str
    outcome: VerifyOutcome
    details: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, aspect: _Optional[str] = ..., outcome: _Optional[_Union[VerifyOutcome, str]] = ..., details: _Optional[_Iterable[str]] = ...) -> None: ...

class DocumentsVerification(_message.Message):
    __slots__ = ("source", "target", "differences", "complete", "repaired")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_FIELD_NUMBER: _ClassVar[int]
    source: int
    target: int
    differences: _containers.RepeatedCompositeFieldContainer[DocumentDifference]
    complete: bool
    repaired: int
    def __init__(self, source: _Optional[int] = ..., target: _Optional[int] = ..., differences: _Optional[_Iterable[_Union[DocumentDifference, _Mapping]]] = ..., complete: _Optional[bool] = ..., repaired: _Optional[int] = ...) -> None: ...

class DocumentDifference(_message.Message):
    __slots__ = ("kind", "key", "details", "source", "target")
    KIND_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    kind: DifferenceKind
    key: str
    details: _containers.RepeatedScalarFieldContainer[str]
    source: str
    target: str
    def __init__(self, kind: _Optional[_Union[DifferenceKind, str]] = ..., key: _Optional[str] = ..., details: _Optional[_Iterable[str]] = ..., source: _Optional[str] = ..., target: _Optional[str] = ...) -> None: ...

class VerifySummary(_message.Message):
    __slots__ = ("outcome", "succeeded", "live", "tables", "documents", "repaired", "source_ts", "target_ts")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TS_FIELD_NUMBER: _ClassVar[int]
    TARGET_TS_FIELD_NUMBER: _ClassVar[int]
    outcome: VerifyOutcome
    succeeded: bool
    live: bool
    tables: int
    documents: int
    repaired: int
    source_ts: str
    target_ts: str
    def __init__(self, outcome: _Optional[_Union[VerifyOutcome, str]] = ..., succeeded: _Optional[bool] = ..., live: _Optional[bool] = ..., tables: _Optional[int] = ..., documents: _Optional[int] = ..., repaired: _Optional[int] = ..., source_ts: _Optional[str] = ..., target_ts: _Optional[str] = ...) -> None: ...
