"""One change of each kind, for the tests of formats."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.event import DdlEvent, DdlType, RowType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, Scope
from changefeed.table import TableId, TableName
from sink.row import RowChange, TargetTable

AT = Position(ClusterTime(1_558_965_508, 31), "00000002")
NAME = TableName("inventory", "customers")
ID = TableId("4efaa5c4ac154364bd0adb5016aad4d5")
TABLE = TargetTable(id=ID, source=NAME, name=NAME, version=Position(ClusterTime(90, 1)))


def no_utf8(document: dict[str, Any]) -> bytes:
    """With the text `??` replaced by two bytes that are no UTF-8."""
    return bson.encode(document).replace(b"??", b"\xff\xfe")


def change(type: RowType, key: Any, *, document: Any = None, update: Any = None) -> RowChange:
    return RowChange(
        table=TABLE,
        type=type,
        key=bson.encode(key if isinstance(key, dict) else {"_id": key}),
        document=None if document is None else bson.encode(document),
        update=None if update is None else bson.encode(update),
        time=AT.ts.to_int(),
        token=AT.token.encode(),
    )


def record(type: DdlType, description: dict[str, Any] | None = None, **more: Any) -> DdlRecord:
    whole = type is DdlType.DROP_DATABASE
    event = DdlEvent(
        position=AT,
        type=type,
        db=NAME.db,
        table=None if whole else NAME,
        id=None if whole else ID,
        description=Document.of(description or {}),
        **more,
    )
    return DdlRecord(event=event, scope=Scope(tables=frozenset({ID})), seen_at=datetime.now(UTC))
