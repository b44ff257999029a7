"""`planned_tables`, `copy_estimate`: what the creation of a changefeed will copy, and about how long that takes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from admin.preflight.update_effect import TableEffect
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.config.configuration import Configuration, OnOccupied
from changefeed.config.written_values import Start
from changefeed.table import TableKind, TableName, TableSchema, TableSize

_WRITING_COST = 4
"""A target of the source's kind needs so many times as long to write documents as the source to give them (docs/reference/performance.md)."""
_NOTHING = TableSize()


class AtTarget(StrEnum):
    CREATED = "created"
    EMPTY = "empty"
    """It exists, without documents, and is created anew."""
    OCCUPIED = "occupied"
    UNKNOWN = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySample:
    sizes: Mapping[TableName, TableSize] = field(default_factory=dict)
    read_rate: float | None = None
    """Bytes a second. None: the source has too little to measure it."""
    send_rate: float | None = None
    oplog: timedelta | None = None
    """How long the oplog lasts at its present pace, once it is full. None: it cannot be read, or is too new."""


def copy_estimate(
    configuration: Configuration, tables: Iterable[pb.PlannedTable], sample: CopySample
) -> pb.CopyEstimate:
    """`takes`: absent if too little is known. `limited`: its `copy_limit` decides."""
    copied = [table for table in tables if table.kind != TableKind.VIEW]
    size = sum((TableSize(documents=table.documents, bytes=table.bytes) for table in copied), _NOTHING)
    written = sample.read_rate / _WRITING_COST if sample.read_rate else None
    measured = min([rate for rate in (written, sample.send_rate) if rate], default=None)
    by_rate = size.bytes / measured if measured else 0.0
    limit = configuration.copy_limit
    by_limit = 0.0
    if limit is not None:
        by_bytes = size.bytes / limit.bytes if limit.bytes else 0.0
        by_limit = max(by_bytes, size.documents / limit.documents if limit.documents else 0.0)
    known = measured is not None or limit is not None
    return pb.CopyEstimate(
        documents=size.documents,
        bytes=size.bytes,
        tables=len(copied),
        chunks=sum(table.chunks for table in copied),
        takes=timedelta(seconds=max(by_rate, by_limit)) if known else None,
        oplog=sample.oplog,
        read_rate=sample.read_rate,
        send_rate=sample.send_rate,
        limited=by_limit > by_rate,
    )


def planned_tables(
    configuration: Configuration,
    tables: Iterable[TableSchema],
    sizes: Mapping[TableName, TableSize],
    chunks: Callable[[TableSchema, TableSize], int],
    at_target: Callable[[TableName], AtTarget],
) -> Iterator[pb.PlannedTable]:
    for schema in sorted(tables, key=lambda schema: schema.name):
        size, target = sizes.get(schema.name), configuration.routes.target(schema.name)
        copied = configuration.start is Start.INITIAL and schema.kind is not TableKind.VIEW
        yield pb.PlannedTable(
            name=str(schema.name),
            target=str(target),
            kind=schema.kind,
            documents=size.documents if size else None,
            bytes=size.bytes if size else None,
            chunks=chunks(schema, size or _NOTHING) if copied else 0,
            indexes=len(schema.indexes),
            at_target=at_target(target),
            effect=TableEffect.ADDED if copied else TableEffect.FOLLOWED,
        )


def oplog_warnings(
    configuration: Configuration, estimate: pb.CopyEstimate, merged: Sequence[TableName]
) -> Iterator[str]:
    """`merged`: names that several tables share."""
    takes, oplog = estimate.takes.ToTimedelta(), estimate.oplog.ToTimedelta()
    if not estimate.HasField("takes") or not estimate.HasField("oplog") or takes < oplog:
        return
    times = f"the source's oplog lasts about {_text(oplog)}, and the copy takes about {_text(takes)}"
    if configuration.on_occupied is OnOccupied.KEEP or merged:
        why = (
            "on_occupied is keep" if configuration.on_occupied is OnOccupied.KEEP else f"{merged[0]} has several tables"
        )
        yield (
            f"start: {times}; since {why}, the copy needs all changes since its start: enlarge the oplog (replSetResizeOplog), or raise its "
            "minRetentionHours, before you create the changefeed"
        )
    else:
        yield (
            f"start: {times}; a copy is followed while it runs, so this may succeed, but a pause or an outage as long as the oplog loses it: "
            "enlarge the oplog (replSetResizeOplog), or raise its minRetentionHours"
        )


def _text(span: timedelta) -> str:
    minutes = round(span.total_seconds() / 60)
    return f"{round(span.total_seconds())} s" if minutes < 2 else f"{minutes // 60} h {minutes % 60:02} min"
