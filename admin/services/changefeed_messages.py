"""`changefeed`: a changefeed as a message of the admin API, with its copies, its stopped tables, and the values that all messages share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from datetime import datetime, timedelta
from functools import lru_cache
from heapq import nlargest
from math import ceil
from typing import Any

import yaml

from admin.cluster_reader import ChangefeedTables, UnreadableChangefeed, tables_of
from admin.copy_totals import one_copy, under_way_now, whole_copy
from admin.lag import MOST_SHOWN, slowest
from admin.services.troubles import TroubleKind, troubles
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.errors import RowRejected
from changefeed.lifecycle import ErrorReport, Lifecycle, State
from changefeed.position import Position
from changefeed.printable import counted
from changefeed.records.node import NodeId
from changefeed.records.requests import ChangefeedId
from changefeed.records.status import LetterTotals
from changefeed.records.sync_point import ComparedPart, SyncPoint, VerifyPass
from changefeed.table import TableId, TableSchema
from owner.etcd_view import OwnerView
from verify.pass_part import COMPARED_FOR

_MOST_STOPPED = 20
_WAITING: Mapping[str, str] = {
    TroubleKind.STOPPED: "stopped",
    TroubleKind.LOST: "lost",
    TroubleKind.REFUSED: "with a refused DDL",
}


def changefeed(
    id: ChangefeedId, known: OwnerView, *, now: datetime, unwritable: ErrorReport | None = None
) -> pb.Changefeed:
    message = without_configuration(id, known, tables_of(known), now=now, unwritable=unwritable)
    message.configuration = configuration_text(known)
    return message


def configuration_text(known: OwnerView) -> str:
    return yaml.safe_dump(known.info.configuration.public(), sort_keys=False, allow_unicode=True)


def without_configuration(
    id: ChangefeedId, known: OwnerView, found: ChangefeedTables, *, now: datetime, unwritable: ErrorReport | None = None
) -> pb.Changefeed:
    """The configuration's text costs as much as all the rest."""
    status, info = known.status, known.info
    lifecycle = lifecycle_now(known, unwritable)
    checkpoint = status.checkpoint if status else None
    lag = status.lag(now) if status else None
    letters = status.letters if status else LetterTotals()
    stopped = stopped_tables(known, found)
    return pb.Changefeed(
        id=id,
        version=info.version,
        desired=f"DESIRED_STATE_{info.desired.name}",
        state=f"CHANGEFEED_STATE_{lifecycle.state.name}",
        obeyed=status is not None and status.info_version == info.version,
        checkpoint=text(checkpoint),
        resolved=text(status.resolved if status else None),
        lag=None if unwritable else lag,
        error=error_report(lifecycle.error),
        created_at=info.created_at,
        retry_at=lifecycle.retry_at,
        tables=len(found.living),
        held_tables=len(known.barrier.held) if known.barrier else 0,
        open_ddls=sum(record.open for record in known.records.values()),
        copy=whole_copy(known, found.progress.tables),
        rows=alike(known.all_rows, "skipped", "repaired", "rejected", "applied"),
        capture=info.capture,
        capture_reason=info.capture_reason,
        stopped_tables=len(stopped),
        stopped=stopped[:_MOST_STOPPED],
        slowest=slowest_tables(known, now, found),
        copies=running_copies(known, found),
        copy_limit=str(info.configuration.copy_limit or ""),
        apply_limit=str(info.configuration.apply_limit or ""),
        delay=str(info.configuration.delay or ""),
        open_letters=alike(letters, "count", "bytes"),
        still_on=_still_on(known),
        attention=attention(stopped, letters.count),
        as_of=unwritable.at if unwritable else None,
        sync_points=_sync_points(known, now),
    )


def attention(stopped: Iterable[pb.StoppedTable], rejected: int) -> str:
    """What waits for a user, in short: the state does not say it, since everything else goes on."""
    kinds = Counter(table.trouble for table in stopped)
    tables = (f"{counted(count, 'table')} {_WAITING[kind]}" for kind, count in sorted(kinds.items()))
    rows = [f"{counted(rejected, 'row')} rejected"] if rejected else []
    return ", ".join([*tables, *rows])


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


def slowest_tables(known: OwnerView, now: datetime, found: ChangefeedTables | None = None) -> list[pb.TableLag]:
    if known.status is None:
        return []
    assignments = {node: assigned.record for node, assigned in known.assignments.items()}
    lags = slowest(known.status, assignments, known.reports, now)
    names = _names(found or tables_of(known)) if lags else {}
    return [pb.TableLag(id=each.table, name=names.get(each.table, each.table), lag=each.lag) for each in lags]


def table_names(known: OwnerView) -> dict[TableId, str]:
    return _names(tables_of(known))


def _names(found: ChangefeedTables) -> dict[TableId, str]:
    return {schema.id: str(schema.name) for schema in found.living}


def copy_of(known: OwnerView) -> pb.CopyProgress | None:
    """None while no table is being copied."""
    running = known.status is not None and known.status.copying_since is not None
    return whole_copy(known, tables_of(known).progress.tables) if running else None


def running_copies(known: OwnerView, found: ChangefeedTables | None = None) -> list[pb.TableCopy]:
    """Those that have most to do."""
    under_way = under_way_now(known)
    if not under_way:
        return []
    living = {schema.id: schema for schema in (found or tables_of(known)).living}
    most = nlargest(MOST_SHOWN, under_way, key=lambda table: (under_way[table].left.bytes, table))
    return [_copy(table, living.get(table), one_copy(known, under_way[table])) for table in most]


def _copy(id: TableId, schema: TableSchema | None, progress: pb.CopyProgress | None) -> pb.TableCopy:
    if schema is None:
        return pb.TableCopy(id=id, name=id, copy=progress)
    return pb.TableCopy(id=id, name=str(schema.name), kind=schema.kind, copy=progress)


def _sync_points(known: OwnerView, now: datetime) -> pb.SyncPoints | None:
    points = known.sync
    if known.info.configuration.sync_points is None:
        return None
    return pb.SyncPoints(
        newest=None if points.newest is None else sync_point(points.newest, None),
        **alike(points, "made", "whole", "missed", "missed_because"),
        held=timedelta(seconds=points.held_seconds),
        verification=_verification(known, now),
    )


def _verification(known: OwnerView, now: datetime) -> pb.ContinuousVerification | None:
    found, options = known.verified, known.info.configuration
    if found.present is None or options.sync_points is None or not options.verify.continuous:
        return None
    every, rate = options.sync_points.every.span, options.verify.bytes_per_second
    left = max(0, found.present.due_bytes - found.present.done.bytes) / (
        rate * min(every, COMPARED_FOR).total_seconds()
    )
    return pb.ContinuousVerification(
        at=str(found.at),
        present=_verify_pass(found.present, now + every * ceil(left + 1)),
        last=None if found.last is None else _verify_pass(found.last, None),
    )


def _verify_pass(found: VerifyPass, ends_by: datetime | None) -> pb.VerifyPass:
    return pb.VerifyPass(
        **alike(found, "number", "began_at", "ended_at", "due_bytes"),
        ends_by=ends_by if found.ended_at is None else None,
        done=compared_part(found.done),
        first_at="" if found.first_at is None else str(found.first_at),
        first_in="" if found.first_in is None else str(found.first_in),
    )


def compared_part(part: ComparedPart) -> pb.ComparedPart:
    return pb.ComparedPart(
        **alike(part, *(each.name for each in fields(part) if each.name != "left_out")), not_compared=part.left_out
    )


def sync_point(point: SyncPoint, history: timedelta | None) -> pb.SyncPoint:
    ends = [ts.to_datetime() + history for ts in (point.source, point.target)] if history is not None else []
    return pb.SyncPoint(
        source_ts=str(point.source),
        target_ts=str(point.target),
        made_at=point.made_at,
        excepted=[
            pb.ExceptedTable(source=map(str, each.source), target=map(str, each.target), why=each.why)
            for each in point.excepted
        ],
        readable_until=min(ends, default=None),
        verified=None if point.verified is None else compared_part(point.verified),
    )


def alike(record: object, *names: str) -> dict[str, Any]:
    """What a message has under the names that a record has it."""
    return {name: getattr(record, name) for name in names}


@lru_cache(1_000)
def text(position: Position | None) -> str:
    """Most tables of a changefeed are at one position."""
    return "" if position is None else str(position)


def error_report(error: ErrorReport | None) -> pb.ErrorReport | None:
    return None if error is None else pb.ErrorReport(**alike(error, "code", "message", "at"))
