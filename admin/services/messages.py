"""`changefeed`, `nodes`, `tables`, `ddls`: etcd's records as messages of the admin API."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from heapq import nlargest

import yaml
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from admin.cluster_reader import ChangefeedTables, ClusterView, ServingNode, UnreadableChangefeed, tables_of
from admin.copy_totals import CopyTotals, one_copy, under_way_now, whole_copy
from admin.lag import MOST_SHOWN, lag_at, node_lag, slowest
from admin.planning.creation_plan import CopyEstimate, PlannedTable
from admin.planning.planner import CreationPlan
from admin.preflight.update_effect import UpdateEffect
from admin.services.troubles import TableFacts, TableTrouble, faults, not_ready, standing, troubles
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.errors import RowRejected
from changefeed.lifecycle import ErrorReport, Lifecycle, State
from changefeed.position import Position
from changefeed.records.node import NodeId, PositionReport, RowCounts
from changefeed.records.requests import ChangefeedId
from changefeed.records.status import LetterTotals
from changefeed.table import TableId, TableKind, TableName, TableSchema
from owner.ddl import barrier
from owner.etcd_view import OwnerView

_TABLE_ID = re.compile(r"\b[0-9a-f]{32}\b")
_MOST_STOPPED = 20
_PORTION = 1_000
_TOKEN = re.compile(r"(?<=\d)/[0-9A-F]{8,}")


def changefeed(
    id: ChangefeedId, known: OwnerView, *, now: datetime, unwritable: ErrorReport | None = None
) -> pb.Changefeed:
    status, info = known.status, known.info
    lifecycle = lifecycle_now(known, unwritable)
    configuration = yaml.safe_dump(info.configuration.public(), sort_keys=False, allow_unicode=True)
    checkpoint = status.checkpoint if status else None
    lag = status.lag(now) if status else None
    letters = status.letters if status else LetterTotals()
    found = tables_of(known)
    stopped = stopped_tables(known, found)
    return pb.Changefeed(
        id=id,
        configuration=configuration,
        version=info.version,
        desired=f"DESIRED_STATE_{info.desired.name}",
        state=f"CHANGEFEED_STATE_{lifecycle.state.name}",
        obeyed=status is not None and status.info_version == info.version,
        checkpoint=text(checkpoint),
        resolved=text(status.resolved if status else None),
        lag=None if lag is None else duration(lag),
        error=_error(lifecycle.error),
        created_at=moment(info.created_at),
        retry_at=moment(lifecycle.retry_at),
        tables=len(found.living),
        held_tables=len(known.barrier.held) if known.barrier else 0,
        open_ddls=sum(record.open for record in known.records.values()),
        copy=copy_progress(whole_copy(known, found.progress.tables)),
        rows=_rows(known.all_rows),
        capture=info.capture,
        capture_reason=info.capture_reason,
        stopped_tables=len(stopped),
        stopped=stopped[:_MOST_STOPPED],
        slowest=_slowest(known, found, now),
        copies=running_copies(known, found),
        copy_limit=str(info.configuration.copy_limit or ""),
        apply_limit=str(info.configuration.apply_limit or ""),
        delay=str(info.configuration.delay or ""),
        open_letters=pb.LetterTotals(count=letters.count, bytes=letters.bytes),
        still_on=_still_on(known),
    )


def unreadable_changefeed(id: ChangefeedId, error: UnreadableChangefeed, now: datetime) -> pb.Changefeed:
    return pb.Changefeed(
        id=id,
        state=pb.CHANGEFEED_STATE_UNREADABLE,
        desired=pb.DESIRED_STATE_REMOVED if error.being_removed else pb.DESIRED_STATE_UNSPECIFIED,
        obeyed=not error.being_removed,
        error=_error(ErrorReport.of(error, now)),
    )


def _still_on(known: OwnerView) -> list[NodeId]:
    if known.status is None or known.status.lifecycle.running:
        return []
    return sorted(node for node, report in known.reports.items() if report.run and node in known.processors)


def _slowest(known: OwnerView, found: ChangefeedTables, now: datetime) -> list[pb.TableLag]:
    if known.status is None:
        return []
    assignments = {node: assigned.record for node, assigned in known.assignments.items()}
    lags = slowest(known.status, assignments, known.reports, now)
    names = _names(found) if lags else {}
    return [pb.TableLag(id=each.table, name=names.get(each.table, each.table), lag=duration(each.lag)) for each in lags]


def table_names(known: OwnerView) -> dict[TableId, str]:
    return _names(tables_of(known))


def copy_of(known: OwnerView) -> pb.CopyProgress | None:
    """None while no table is being copied."""
    running = known.status is not None and known.status.copying_since is not None
    return copy_progress(whole_copy(known, tables_of(known).progress.tables)) if running else None


def running_copies(known: OwnerView, found: ChangefeedTables | None = None) -> list[pb.TableCopy]:
    """Those that have most to do."""
    under_way = under_way_now(known)
    if not under_way:
        return []
    living = {schema.id: schema for schema in (found or tables_of(known)).living}
    most = nlargest(MOST_SHOWN, under_way, key=lambda table: (under_way[table].left.bytes, table))
    return [_copy(table, living.get(table), copy_progress(one_copy(known, under_way[table]))) for table in most]


def _copy(id: TableId, schema: TableSchema | None, progress: pb.CopyProgress | None) -> pb.TableCopy:
    if schema is None:
        return pb.TableCopy(id=id, name=id, copy=progress)
    return pb.TableCopy(id=id, name=str(schema.name), kind=schema.kind, copy=progress)


def _names(found: ChangefeedTables) -> dict[TableId, str]:
    return {schema.id: str(schema.name) for schema in found.living}


def creation_plan(plan: CreationPlan) -> Iterator[pb.CreationPlan]:
    """In portions, since there may be a hundred thousand tables."""
    found = plan.findings
    message = pb.CreationPlan(
        problems=found.problems,
        warnings=found.warnings,
        capture=found.choice.capture if found.choice else "",
        capture_reason=found.choice.reason if found.choice else "",
        estimate=copy_estimate(plan.estimate) if plan.estimate else None,
    )
    for begin in range(0, max(1, len(plan.tables)), _PORTION):
        message.tables.extend(_planned(table) for table in plan.tables[begin : begin + _PORTION])
        yield message
        message = pb.CreationPlan()


def _planned(table: PlannedTable) -> pb.PlannedTable:
    return pb.PlannedTable(
        name=str(table.schema.name),
        target=str(table.target),
        kind=table.schema.kind,
        documents=table.size.documents if table.size else None,
        bytes=table.size.bytes if table.size else None,
        chunks=table.chunks,
        indexes=len(table.schema.indexes),
        at_target=table.at_target,
    )


def copy_estimate(estimate: CopyEstimate) -> pb.CopyEstimate:
    return pb.CopyEstimate(
        documents=estimate.size.documents,
        bytes=estimate.size.bytes,
        tables=estimate.tables,
        chunks=estimate.chunks,
        takes=duration(estimate.takes) if estimate.takes is not None else None,
        read_rate=estimate.read_rate or 0.0,
        send_rate=estimate.send_rate or 0.0,
        limited=estimate.limited,
        oplog=duration(estimate.oplog) if estimate.oplog is not None else None,
    )


def _rows(counts: RowCounts) -> pb.RowCounts:
    return pb.RowCounts(skipped=counts.skipped, repaired=counts.repaired, rejected=counts.rejected)


def preview(version: int, effect: UpdateEffect, warnings: Iterable[str]) -> pb.UpdatePreview:
    return pb.UpdatePreview(
        version=version,
        options=[pb.ChangedOption(path=each.path, before=each.before, now=each.now) for each in effect.options],
        tables=[
            pb.ChangedTable(
                name=str(table.name),
                effect=table.effect,
                target_before=str(table.before or ""),
                target=str(table.now or ""),
            )
            for table in effect.tables
        ],
        notes=effect.notes,
        warnings=warnings,
    )


def lifecycle_now(known: OwnerView, unwritable: ErrorReport | None) -> Lifecycle:
    """The lifecycle in etcd, with an error while this node cannot write to etcd, and with a warning while the target refuses rows.

    Pipelines that run according to etcd then stop soon, and etcd cannot record it, so the serving node adds the error.
    """
    lifecycle = known.status.lifecycle if known.status else Lifecycle()
    if unwritable is None or not (lifecycle.running or lifecycle.state is State.PENDING):
        refused = _refused_rows(known)
        normal = lifecycle.state is State.NORMAL
        return replace(lifecycle, state=State.WARNING, error=refused) if normal and refused else lifecycle
    state = State.WARNING if lifecycle.running else lifecycle.state
    return replace(lifecycle, state=state, error=unwritable)


def _refused_rows(known: OwnerView) -> ErrorReport | None:
    configuration, letters = known.info.configuration, known.status.letters if known.status else LetterTotals()
    if not letters.count:
        return None
    rows = "1 row is" if letters.count == 1 else f"{letters.count:,} rows are"
    return ErrorReport(
        code=RowRejected.code,
        message=f"{rows} rejected by the target and not replicated; `sluice table rejected {configuration.id}` shows which and why. Remove the "
        f"cause at the target, then `sluice table retry-rejected {configuration.id} TABLE`",
        retryable=False,
        at=letters.since or known.info.created_at,
    )


def nodes(view: ClusterView, serving: ServingNode, now: datetime) -> Iterator[pb.Node]:
    leader = view.owner
    counts: dict[NodeId, int] = {}
    reports: dict[NodeId, list[tuple[ChangefeedId, PositionReport]]] = {}
    changefeeds = view.changefeeds().readable
    for id, known in changefeeds.items():
        for node, assigned in known.assignments.items():
            counts[node] = counts.get(node, 0) + len(assigned.record.tables)
        for node, report in known.present_reports.items():
            given = known.assignments.get(node)
            if (given is not None and given.record.tables) or report.error is not None or report.reaches:
                reports.setdefault(node, []).append((id, report))
    lags = lags_of_nodes(changefeeds.values(), now)
    for node, stored in sorted(view.nodes.items()):
        record, own = stored.record, node == serving.node()
        found = faults(record.health, reports.get(node, ()))
        feed, error = found.last or (None, None)
        takes_part = node in reports
        yield pb.Node(
            id=record.id,
            name=record.name,
            admin_address=record.admin_address,
            roles=sorted(record.roles),
            version=record.version,
            started_at=moment(record.started_at),
            owner=leader is not None and leader.node == node,
            draining=record.draining,
            tables=counts.get(node, 0),
            not_ready=serving.not_ready() if own else not_ready(record.health) if record.health else "",
            spark=record.health.ready if record.health else None,
            etcd_writable=serving.unwritable() is None if own else None,
            source_reachable=not found.source if takes_part else None,
            target_reachable=not found.target if takes_part else None,
            last_error=_error(error),
            last_error_changefeed=feed or "",
            lag=duration(lags[node]) if node in lags else None,
        )


def lags_of_nodes(changefeeds: Iterable[OwnerView], now: datetime) -> dict[NodeId, timedelta]:
    """Of the nodes that have tables which are not stopped."""
    found: dict[NodeId, timedelta] = {}
    for known in changefeeds:
        if known.status is None or known.status.checkpoint is None or not known.status.lifecycle.running:
            continue
        for node, assigned in known.assignments.items():
            lag = node_lag(known.status, assigned.record, known.reports.get(node), known.stragglers.keys(), now)
            if lag is not None:
                found[node] = max(lag, found.get(node, lag))
    return found


def tables(known: OwnerView, found: ChangefeedTables, *, now: datetime) -> Iterator[pb.Table]:
    in_copy, in_trouble = under_way_now(known), troubles(known.stragglers, known.records.values())
    for schema in sorted(found.living, key=lambda schema: schema.name):
        facts = _facts(known, found, schema, in_trouble.get(schema.id), copying=schema.id in in_copy, now=now)
        stands, trouble = standing(facts, now), facts.trouble
        has_rows = schema.kind is not TableKind.VIEW
        finished = known.status is not None and known.status.lifecycle.state is State.FINISHED
        lag = lag_at(known.status, found.of(schema.id), now) if known.status and has_rows and not finished else None
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
            copy=copy_progress(one_copy(known, in_copy[schema.id])) if facts.copying else None,
            trouble=trouble.kind if trouble else "",
            error=_error(stands.error or (trouble.error if trouble else None)),
            state=stands.state,
            lag=None if lag is None else duration(lag),
            target_age=duration(now - schema.beside.stands_at.ts.to_datetime()) if schema.beside else None,
            rows_to_repair=len(known.repairs[schema.id].keys) if schema.id in known.repairs else 0,
        )


def _facts(
    known: OwnerView,
    found: ChangefeedTables,
    schema: TableSchema,
    trouble: TableTrouble | None,
    *,
    copying: bool,
    now: datetime,
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
        recopied=schema.beside is not None,
        held=barrier is not None and table in barrier.held,
        at=found.of(table),
        barrier=barrier.of(table) if barrier and has_rows else None,
        lag=status.lag(now) if status else None,
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


def stopped_tables(known: OwnerView, found: ChangefeedTables) -> list[pb.StoppedTable]:
    names = {record.event.id: record.event.table for record in known.records.values() if record.event.table}
    names |= {schema.id: schema.name for schema in found.living}
    return [
        pb.StoppedTable(id=id, name=str(names.get(id, id)), trouble=trouble.kind, error=_error(trouble.error))
        for id, trouble in sorted(troubles(known.stragglers, known.records.values()).items())
        if trouble.waits_for_user
    ]


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
            state=record.state,
            waits_for=_readable(barrier.waits_for(record, records, found.of, stopped), names) if record.open else "",
            note=record.note,
            seen_at=moment(record.seen_at),
            executing_at=moment(record.executing_at),
            done_at=moment(record.done_at),
            refused=_error(record.refused),
        )


def copy_progress(found: CopyTotals | None) -> pb.CopyProgress | None:
    if found is None:
        return None
    left_for = found.left_for
    return pb.CopyProgress(
        documents=found.copied.documents,
        bytes=found.copied.bytes,
        chunks_done=found.chunks_done,
        chunks=found.chunks,
        tables=found.tables,
        tables_done=found.tables_done,
        share=found.share,
        left=None if left_for is None else duration(left_for),
        documents_left=found.left.documents,
        bytes_left=found.left.bytes,
        documents_rate=found.rate.documents,
        bytes_rate=found.rate.bytes,
    )


def text(position: Position | None) -> str:
    return "" if position is None else str(position)


def moment(at: datetime | None) -> Timestamp | None:
    if at is None:
        return None
    stamp = Timestamp()
    stamp.FromDatetime(at.astimezone(UTC))
    return stamp


def duration(length: timedelta) -> Duration:
    found = Duration()
    found.FromTimedelta(length)
    return found


def _readable(reason: str, names: Mapping[TableId, TableName]) -> str:
    """The text with names of tables instead of ids, and with positions without tokens."""
    named = _TABLE_ID.sub(lambda match: str(names.get(TableId(match[0]), match[0])), reason)
    return _TOKEN.sub("", named)


def _target(known: OwnerView, schema: TableSchema) -> str:
    configuration = known.info.configuration
    return str(configuration.routes.target(schema.name)) if configuration.filter.wants_table(schema.name) else ""


def _error(error: ErrorReport | None) -> pb.ErrorReport | None:
    return None if error is None else pb.ErrorReport(code=error.code, message=error.message, at=moment(error.at))
