"""`tables`, `places`, `ddls`: the tables of a changefeed and its DDLs as messages of the admin API."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from admin.cluster_reader import ChangefeedTables
from admin.copy_totals import one_copy, under_way_now
from admin.lag import beside
from admin.services.changefeed_messages import alike, error_report, text
from admin.services.troubles import TableFacts, TableTrouble, standing, troubles
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.lifecycle import ErrorReport, State
from changefeed.position import Position
from changefeed.records.node import NodeId
from changefeed.table import TableId, TableKind, TableName, TableSchema
from owner.ddl import barrier
from owner.etcd_view import OwnerView

_TABLE_ID = re.compile(r"\b[0-9a-f]{32}\b")
_TOKEN = re.compile(r"(?<=\d)/[0-9A-F]{8,}")


def tables(known: OwnerView, found: ChangefeedTables, *, now: datetime) -> Iterator[pb.Table]:
    """There may be a hundred thousand."""
    in_copy, in_trouble = under_way_now(known), troubles(known.stragglers, known.records.values())
    finished = known.status is not None and known.status.lifecycle.state is State.FINISHED
    whole = known.status.lag(now) if known.status else None
    for schema in sorted(found.living, key=lambda schema: schema.name):
        facts = _facts(known, found, schema, in_trouble.get(schema.id), copying=schema.id in in_copy, lag=whole)
        stands, trouble = standing(facts, now), facts.trouble
        has_rows = schema.kind is not TableKind.VIEW
        lag = beside(known.status, whole, facts.at) if known.status and has_rows and not finished else None
        yield pb.Table(
            id=schema.id,
            name=str(schema.name),
            target=_target(known, schema),
            kind=schema.kind,
            node=facts.node or "",
            checkpoint=text(facts.at),
            barrier=text(facts.barrier),
            held=facts.held,
            leaving=facts.leaving,
            schema_valid_from=text(schema.valid_from),
            copy=one_copy(known, in_copy[schema.id]) if facts.copying else None,
            trouble=trouble.kind if trouble else "",
            error=error_report(stands.error or (trouble.error if trouble else None)),
            state=stands.state,
            lag=lag,
            target_age=now - schema.beside.stands_at.ts.to_datetime() if schema.beside else None,
            rows_to_repair=len(known.repairs[schema.id].keys) if schema.id in known.repairs else 0,
        )


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where a table stands, in short. `at`: its checkpoint."""

    schema: TableSchema
    state: str
    node: NodeId | None
    at: Position | None


def places(known: OwnerView, found: ChangefeedTables, *, now: datetime) -> Iterator[TablePlace]:
    """Of all tables, in the order of `found`, for a tenth of what their messages cost: those with nothing special are told by node and position."""
    in_copy, in_trouble = under_way_now(known), troubles(known.stragglers, known.records.values())
    whole = known.status.lag(now) if known.status else None
    special = {*in_copy, *in_trouble, *(known.barrier.held if known.barrier else ())}
    special.update(*(assigned.record.leaving for assigned in known.assignments.values()))
    for report in known.reports.values():
        special |= report.failed.keys() | report.retried.keys() | report.late.keys()
        special |= {report.error.table} if report.error is not None and report.error.table else set()
    alike: dict[tuple[NodeId | None, Position | None], str] = {}
    for schema in found.living:
        table, place = schema.id, (found.progress.home.get(schema.id), found.of(schema.id))
        plain = schema.kind is not TableKind.VIEW and schema.beside is None and table not in special
        state = alike.get(place) if plain else None
        if state is None:
            copying = table in in_copy
            facts = _facts(known, found, schema, in_trouble.get(table), copying=copying, lag=whole)
            state = standing(facts, now).state
            if plain:
                alike[place] = state
        yield TablePlace(schema, state, *place)


def _facts(
    known: OwnerView,
    found: ChangefeedTables,
    schema: TableSchema,
    trouble: TableTrouble | None,
    *,
    copying: bool,
    lag: timedelta | None,
) -> TableFacts:
    table, node, status, barrier = schema.id, found.progress.home.get(schema.id), known.status, known.barrier
    has_rows = schema.kind is not TableKind.VIEW
    return TableFacts(
        kind=schema.kind,
        state=status.lifecycle.state if status else None,
        node=node,
        failing=_error_on(known, node, table) if node is not None else None,
        trouble=trouble,
        leaving=node is not None and table in known.assignments[node].record.leaving,
        copying=copying,
        beside=schema.beside is not None,
        held=barrier is not None and table in barrier.held,
        at=found.of(table),
        barrier=barrier.of(table) if barrier and has_rows else None,
        lag=lag,
    )


def _error_on(known: OwnerView, node: NodeId, table: TableId) -> ErrorReport | None:
    """Why the table's node does not replicate it: its Spark does not run, or it says so in the present run."""
    report, record = known.reports.get(node), known.processors.get(node)
    error = record.health.error if record is not None and record.health is not None else None
    if error is None and report is not None and known.status is not None and report.run == known.status.run:
        others = report.error is not None and report.error.table not in (None, table)
        error = report.failed.get(table) or report.retried.get(table) or report.late.get(table)
        error = error or (None if others else report.error)
    return error.on(node, alone=True) if error is not None else None


def _target(known: OwnerView, schema: TableSchema) -> str:
    configuration = known.info.configuration
    return str(configuration.routes.target(schema.name)) if configuration.filter.wants_table(schema.name) else ""


def ddls(known: OwnerView, found: ChangefeedTables) -> Iterator[pb.Ddl]:
    records = sorted(known.records.values(), key=lambda record: record.position)
    names = {schema.id: schema.name for schema in found.living}
    stopped = {table for table, stored in known.stragglers.items() if stored.record.stopped}
    for record in records:
        event = record.event
        yield pb.Ddl(
            position=text(record.position),
            type=event.type,
            table=str(event.table or event.db),
            renamed_to=str(event.renamed_to or ""),
            waits_for=_readable(barrier.waits_for(record, records, found.of, stopped), names) if record.open else "",
            **alike(record, "state", "note", "seen_at", "executing_at", "done_at"),
            refused=error_report(record.refused),
        )


def _readable(reason: str, names: Mapping[TableId, TableName]) -> str:
    """The text with names of tables instead of ids, and with positions without tokens."""
    named = _TABLE_ID.sub(lambda match: str(names.get(TableId(match[0]), match[0])), reason)
    return _TOKEN.sub("", named)
