"""Rows as tests of their writer see them: changes from a real change stream, or made up, and what the target has then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeAlias

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection

from changefeed.cluster_time import ClusterTime
from changefeed.event import RowType
from changefeed.table import TableId, TableName
from sink.row import RowChange, TargetTable, WriteResult

Rows: TypeAlias = Collection[dict[str, Any]]
_TIMES = count(5)
RAW = CodecOptions(RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)


def permit() -> float:
    return 30.0


def table_of(rows: Rows, **options: Any) -> TargetTable:
    name = TableName(rows.database.name, rows.name)
    return TargetTable(id=TableId("ab" * 16), source=name, name=name, **options)


def changes_of(source: Rows, work: Callable[[Rows], object], table: TargetTable) -> list[RowChange]:
    raw = source.with_options(codec_options=RAW)
    expanded = source.database.client.server_info()["versionArray"][0] >= 6 or None
    with raw.watch(show_expanded_events=expanded, max_await_time_ms=100) as stream:
        work(source)
        source.insert_one({"_id": "the end"})
        changes: list[RowChange] = []
        for event in stream:
            if event["documentKey"]["_id"] == "the end":
                return changes
            changes.append(_change(event, table))
    raise AssertionError("the stream ended before the work did")


def _change(event: Any, table: TargetTable) -> RowChange:
    def raw(name: str) -> bytes | None:
        return event[name].raw if event.get(name) is not None else None

    time = ClusterTime.from_bson(event["clusterTime"]).to_int()
    token = event["_id"]["_data"].encode()
    key = event["documentKey"].raw
    return RowChange(
        table, RowType(event["operationType"]), key, raw("fullDocument"), raw("updateDescription"), time, token
    )


def made(
    table: TargetTable,
    kind: RowType,
    key: Any,
    document: dict[str, Any] | None = None,
    update: dict[str, Any] | None = None,
) -> RowChange:
    return RowChange(
        table,
        kind,
        bson.encode({"_id": key}),
        bson.encode({"_id": key, **document}) if document is not None else None,
        bson.encode({"updatedFields": {}, "removedFields": [], "truncatedArrays": [], **update}) if update else None,
        next(_TIMES),
        b"82",
    )


def documents_of(rows: Rows) -> list[bytes]:
    raw = rows.with_options(codec_options=RAW)
    return sorted(bytes(document.raw) for document in raw.find({"_id": {"$ne": "the end"}}))


def inserts_of(table: TargetTable, keys: Sequence[int]) -> list[RowChange]:
    return [made(table, RowType.INSERT, key, {"_id": key}) for key in keys]


def keys_in(result: WriteResult) -> list[str]:
    """The keys, as text, of the rows that the result tells of."""
    return [sample.split(" ", 3)[3].partition(" at ")[0] for sample in result.samples]
