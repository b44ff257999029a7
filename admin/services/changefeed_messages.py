"""`changefeed`: a changefeed as a message of the admin API, with its copies, its stopped tables, and the values that all messages share."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from heapq import nlargest

import yaml
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from admin.cluster_reader import ChangefeedTables, UnreadableChangefeed, tables_of
from admin.copy_totals import CopyTotals, one_copy, under_way_now, whole_copy
from admin.lag import MOST_SHOWN, slowest
from admin.services.troubles import troubles
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.errors import RowRejected
from changefeed.lifecycle import ErrorReport, Lifecycle, State
from changefeed.position import Position
from changefeed.records.node import NodeId, RowCounts
from changefeed.records.requests import ChangefeedId
from changefeed.records.status import LetterTotals
from changefeed.table import TableId, TableSchema
from owner.etcd_view import OwnerView

_MOST_STOPPED = 20


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
        error=error_report(lifecycle.error),
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
        error=error_report(ErrorReport.of(error, now)),
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


def stopped_tables(known: OwnerView, found: ChangefeedTables) -> list[pb.StoppedTable]:
    names = {record.event.id: record.event.table for record in known.records.values() if record.event.table}
    names |= {schema.id: schema.name for schema in found.living}
    return [
        pb.StoppedTable(id=id, name=str(names.get(id, id)), trouble=trouble.kind, error=error_report(trouble.error))
        for id, trouble in sorted(troubles(known.stragglers, known.records.values()).items())
        if trouble.waits_for_user
    ]


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


def _names(found: ChangefeedTables) -> dict[TableId, str]:
    return {schema.id: str(schema.name) for schema in found.living}


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


def _rows(counts: RowCounts) -> pb.RowCounts:
    return pb.RowCounts(skipped=counts.skipped, repaired=counts.repaired, rejected=counts.rejected)


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


def error_report(error: ErrorReport | None) -> pb.ErrorReport | None:
    return None if error is None else pb.ErrorReport(code=error.code, message=error.message, at=moment(error.at))
