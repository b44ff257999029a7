"""`print_plan`, `estimate_line`: what the creation of a changefeed would do, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from cli import cells
from cli.output import Column, Output, print_line, print_messages

_AT_TARGET = {"created": "is created", "empty": "exists, empty", "occupied": "has documents"}


def _documents(table: pb.PlannedTable) -> str:
    if not table.HasField("documents"):
        return "-"
    unit = cells.rows(table.kind)
    return f"{table.documents:,}" if unit == "docs" else f"{table.documents:,} {unit}"


_PLANNED: Sequence[Column] = (
    Column("TABLE", lambda table: table.name, rigid=False),
    Column("TARGET", lambda table: "=" if table.target == table.name else table.target, rigid=False),
    Column("KIND", lambda table: table.kind),
    Column("DOCS", _documents, right=True),
    Column("SIZE", lambda table: cells.size(table.bytes) if table.HasField("bytes") else "-", right=True),
    Column("CHUNKS", lambda table: f"{table.chunks:,}" if table.chunks else "-", right=True),
    Column("INDEXES", lambda table: f"{table.indexes:,}", right=True),
    Column("AT TARGET", lambda table: _AT_TARGET.get(table.at_target, "-")),
)


def print_plan(plan: pb.CreationPlan) -> None:
    print_messages(plan.tables, _PLANNED, Output.TABLE, empty="no table of the source matches")
    for line in _lines(plan):
        print_line(line)


def _lines(plan: pb.CreationPlan) -> Iterator[str]:
    if plan.capture:
        yield f"capture: {plan.capture}, since {plan.capture_reason}"
    if plan.HasField("estimate"):
        yield estimate_line(plan.estimate)
        yield from _basis(plan.estimate)
    elif plan.tables:
        yield "copy: nothing is copied"


def estimate_line(estimate: pb.CopyEstimate) -> str:
    tables = "1 table" if estimate.tables == 1 else f"{estimate.tables:,} tables"
    chunks = "1 chunk" if estimate.chunks == 1 else f"{estimate.chunks:,} chunks"
    takes = f", about {cells.span(estimate.takes.ToTimedelta().total_seconds())}" if estimate.HasField("takes") else ""
    return f"copy: {estimate.documents:,} docs, {cells.size(estimate.bytes)} of {tables}, in about {chunks}{takes}"


def _basis(estimate: pb.CopyEstimate) -> Iterator[str]:
    if estimate.limited:
        yield "      its copy_limit decides how long it takes"
    if estimate.read_rate:
        way = f", the way to the target takes {cells.size(int(estimate.send_rate))}/s" if estimate.send_rate else ""
        yield (
            f"      measured: one connection reads {cells.size(int(estimate.read_rate))}/s{way}; not measured, since nothing is written: a target "
            "of the same kind writes about a quarter of what is read"
        )
    if estimate.HasField("oplog"):
        yield f"oplog: lasts about {cells.span(estimate.oplog.ToTimedelta().total_seconds())} at its present pace"
