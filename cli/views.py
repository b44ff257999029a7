"""`facts`, `changed_line`, `update_lines`, `print_plan`: a changefeed, and what a creation or an update does, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.printable import counted, sized
from cli import cells
from cli.output import Output, print_line, print_messages
from cli.tables import Cell, Column, Styled

LISTED: Sequence[Column] = (
    Column("ID", lambda feed: feed.id),
    Column("STATE", cells.state, text=True),
    Column("LAG", cells.seconds, right=True),
    Column("CHECKPOINT", lambda feed: cells.position(feed.checkpoint), optional=True),
    Column("TABLES", lambda feed: f"{feed.tables:,}", right=True),
    Column("HELD", lambda feed: f"{feed.held_tables:,}", right=True),
    Column("STOPPED", lambda feed: f"{feed.stopped_tables:,}", right=True),
    Column("REJECTED", lambda feed: f"{feed.open_letters.count:,}", right=True),
    Column("REPAIRED", lambda feed: f"{feed.rows.repaired:,}", right=True, optional=True),
    Column("SKIPPED", lambda feed: f"{feed.rows.skipped:,}", right=True, optional=True),
    Column("CAPTURE", lambda feed: cells.dash(feed.capture), optional=True),
    Column("ERROR", lambda feed: feed.error.code if feed.HasField("error") else "", text=True),
)


HISTORY: Sequence[Column] = (
    Column("AT", lambda entry: cells.moment(entry, "at")),
    Column("BY", lambda entry: cells.dash(entry.by)),
    Column("FROM", lambda entry: cells.dash(entry.address), optional=True),
    Column("ACTION", lambda entry: entry.action),
    Column("SUBJECT", lambda entry: entry.subject, text=True),
    Column("BEFORE", lambda entry: entry.before, text=True),
    Column("AFTER", lambda entry: entry.after, text=True),
    Column("NOTE", lambda entry: entry.note, text=True),
)


def facts(feed: pb.Changefeed) -> list[tuple[str, Cell]]:
    """For `query`: names and values, the most important first, and the configuration as YAML at the end."""
    if cells.unreadable(feed):
        return [
            ("id", feed.id),
            ("state", cells.state(feed)),
            ("error", Styled(feed.error.code, "red")),
            ("", feed.error.message),
        ]
    found: list[tuple[str, Cell]] = [
        ("id", feed.id),
        ("state", cells.state(feed)),
        ("lag", cells.seconds(feed)),
        *(("", f"{table.name}: {cells.lag(table)}") for table in feed.slowest),
        ("checkpoint", _place(feed.checkpoint)),
        ("resolved", _place(feed.resolved)),
        ("capture", f"{feed.capture}{feed.capture_reason and f', since {feed.capture_reason}'}"),
        ("tables", f"{feed.tables:,}"),
        ("stopped tables", Styled(f"{feed.stopped_tables:,}", "red") if feed.stopped_tables else ""),
        *(("", f"{table.name} ({table.trouble}): {_why(table)}") for table in feed.stopped),
        ("still running on", ", ".join(feed.still_on)),
        ("held by DDL", f"{feed.held_tables:,}" if feed.held_tables else ""),
        ("open DDL", f"{feed.open_ddls:,}" if feed.open_ddls else ""),
        ("copy", cells.copy(feed) if feed.HasField("copy") else ""),
        *(
            ("", f"{table.name}: {cells.copy_bar(table.copy, cells.rows(table.kind))}")
            for table in feed.copies
            if feed.copy.tables > 1
        ),
        ("copy limit", feed.copy_limit),
        ("apply limit", feed.apply_limit),
        ("delay", feed.delay),
        *_sync_points(feed),
        ("replayed changes skipped", f"{feed.rows.skipped:,}" if feed.rows.skipped else ""),
        ("divergent rows repaired", f"{feed.rows.repaired:,}" if feed.rows.repaired else ""),
        ("rows rejected", Styled(_letters(feed), "red") if feed.open_letters.count else ""),
        ("changes rejected", f"{feed.rows.rejected:,}" if feed.rows.rejected else ""),
        ("created", cells.moment(feed, "created_at")),
        ("version", str(feed.version)),
    ]
    if feed.HasField("error"):
        found += [
            ("error", Styled(feed.error.code, "red")),
            ("", feed.error.message),
            ("since", cells.moment(feed.error, "at")),
        ]
    if feed.HasField("retry_at"):
        found.append(("tries again", cells.moment(feed, "retry_at")))
    return [*found, ("configuration", feed.configuration.rstrip())]


_MOST_TABLES = 10
"""Of one kind of change. `-o json` shows all."""
_EFFECTS = {
    "added": "copied to {target}, then followed",
    "followed": "followed as {target}",
    "removed": "no longer replicated; it stays at the target as it is",
    "renamed": "{target_before} is renamed to {target} at the target",
    "copied": "copied anew to {target}; {target_before} stays at the target as it is",
}


def update_lines(plan: pb.Plan) -> Iterator[str]:
    """What an update does, for a user to confirm."""
    for option in plan.options:
        yield f"{option.path}: {option.before} -> {option.now}"
    yield from plan.notes
    for effect, tables in groupby(plan.tables, lambda table: table.effect):
        found = list(tables)
        for table in found[:_MOST_TABLES]:
            what = _EFFECTS.get(effect, effect).format(target=table.target, target_before=table.target_before)
            yield f"table {table.name}: {what}"
        if len(found) > _MOST_TABLES:
            yield f"and {counted(len(found) - _MOST_TABLES, 'more table')}: {effect}"


def changed_line(feed: pb.Changefeed) -> str:
    parts = [
        cells.moment_now(),
        f"{cells.state(feed).plain:<9}",
        f"checkpoint {cells.position(feed.checkpoint)}",
        f"lag {cells.seconds(feed)}",
        f"held {feed.held_tables}" if feed.held_tables else "",
        f"stopped {feed.stopped_tables}" if feed.stopped_tables else "",
        f"rejected {feed.open_letters.count}" if feed.open_letters.count else "",
        f"repaired {feed.rows.repaired}" if feed.rows.repaired else "",
        f"copy {cells.copy(feed)}" if feed.HasField("copy") else "",
        feed.error.message if feed.HasField("error") else "",
    ]
    return "  ".join(part for part in parts if part)


def _sync_points(feed: pb.Changefeed) -> Iterator[tuple[str, str | Styled]]:
    points = feed.sync_points
    if points.HasField("newest"):
        excepted = f", {counted(len(points.newest.excepted), 'table')} excepted" if points.newest.excepted else ""
        yield "newest sync point", f"{_place(points.newest.source_ts)}{excepted}"
    if feed.HasField("sync_points"):
        missed = f", {points.missed:,} given up: {points.missed_because}" if points.missed else ""
        yield "sync points", f"{points.made:,}, {points.whole:,} of them without exceptions{missed}"
    if points.HasField("verification"):
        yield from _verification(points.verification)


def _verification(found: pb.ContinuousVerification) -> Iterator[tuple[str, str | Styled]]:
    for title, each in (("verification", found.present), ("pass before", found.last)):
        if each.number:
            done = each.done
            over = (
                f"ended {cells.moment(each, 'ended_at')}"
                if each.HasField("ended_at")
                else f"{sized(done.bytes)} of about {sized(each.due_bytes)}, ends by {cells.moment(each, 'ends_by')}"
            )
            left_out = f", {done.not_compared:,} tables not compared" if done.not_compared else ""
            reordered = f", {done.reordered:,} with another order of fields" if done.reordered else ""
            text = f"pass {each.number:,}, {over}: {done.documents:,} documents, {done.different:,} differences{reordered}{left_out}"
            yield title, Styled(text, "red") if done.different else text
        if each.first_in:
            yield (
                "",
                f"first difference in {each.first_in} at {each.first_at}; `sluice verify ID --at {each.first_at}` shows it while it can be read",
            )


def _letters(feed: pb.Changefeed) -> str:
    return f"{feed.open_letters.count:,} ({sized(feed.open_letters.bytes)} of dead letters)"


def _why(table: pb.StoppedTable) -> str:
    return table.error.message if table.HasField("error") else "a user stopped it"


def _place(text: str) -> str:
    return f"{cells.position(text)}  ({text.partition('/')[0]})" if text else "-"


_AT_TARGET = {"created": "is created", "empty": "exists, empty", "occupied": "has documents"}


def _documents(table: pb.PlannedTable) -> str:
    if not table.HasField("documents"):
        return "-"
    unit = cells.rows(table.kind)
    return f"{table.documents:,}" if unit == "docs" else f"{table.documents:,} {unit}"


_PLANNED: Sequence[Column] = (
    Column("TABLE", lambda table: table.name),
    Column("TARGET", lambda table: "=" if table.target == table.name else table.target),
    Column("KIND", lambda table: table.kind),
    Column("DOCS", _documents, right=True),
    Column("SIZE", lambda table: sized(table.bytes) if table.HasField("bytes") else "-", right=True),
    Column("CHUNKS", lambda table: f"{table.chunks:,}" if table.chunks else "-", right=True),
    Column("INDEXES", lambda table: f"{table.indexes:,}", right=True, optional=True),
    Column("AT TARGET", lambda table: _AT_TARGET.get(table.at_target, "-")),
)


def print_plan(plan: pb.Plan) -> None:
    print_messages(plan.tables, _PLANNED, Output.TABLE, empty="no table of the source matches")
    for line in _lines(plan):
        print_line(line)


def _lines(plan: pb.Plan) -> Iterator[str]:
    if plan.capture:
        yield f"capture: {plan.capture}, since {plan.capture_reason}"
    if plan.HasField("estimate"):
        yield estimate_line(plan.estimate)
        yield from _basis(plan.estimate)
    elif plan.tables:
        yield "copy: nothing is copied"


def estimate_line(estimate: pb.CopyEstimate) -> str:
    takes = f", about {cells.span(estimate.takes.ToTimedelta().total_seconds())}" if estimate.HasField("takes") else ""
    return f"copy: {estimate.documents:,} docs, {sized(estimate.bytes)} of {counted(estimate.tables, 'table')}, in about {counted(estimate.chunks, 'chunk')}{takes}"


def _basis(estimate: pb.CopyEstimate) -> Iterator[str]:
    if estimate.limited:
        yield "      its copy_limit decides how long it takes"
    if estimate.read_rate:
        way = f", the way to the target takes {sized(int(estimate.send_rate))}/s" if estimate.send_rate else ""
        yield (
            f"      measured: one connection reads {sized(int(estimate.read_rate))}/s{way}; not measured, since nothing is written: a target "
            "of the same kind writes about a quarter of what is read"
        )
    if estimate.HasField("oplog"):
        yield f"oplog: lasts about {cells.span(estimate.oplog.ToTimedelta().total_seconds())} at its present pace"
