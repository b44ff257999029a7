"""`sluice verify`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

import typer

from admin.stubs.sluice.admin.v1 import verify_pb2 as pb
from changefeed.printable import counted
from cli.channel import Connection
from cli.command import ChangefeedArgument, OutputOption, connected
from cli.groups import examples
from cli.output import ExitCode, Failure, Output, plain, print_document, print_line, print_messages
from cli.tables import Column, Styled

_WORDS = {
    pb.VERIFY_OUTCOME_EQUAL: ("equal", "green"),
    pb.VERIFY_OUTCOME_NOT_COMPARABLE: ("not comparable", "cyan"),
    pb.VERIFY_OUTCOME_REORDERED: ("order differs", "yellow"),
    pb.VERIFY_OUTCOME_UNSETTLED: ("unsettled", "yellow"),
    pb.VERIFY_OUTCOME_DIFFERENT: ("different", "red"),
}
_SAID = {
    pb.DIFFERENCE_KIND_MISSING: "missing at the target",
    pb.DIFFERENCE_KIND_EXTRA: "at the target only",
    pb.DIFFERENCE_KIND_CHANGED: "differs",
    pb.DIFFERENCE_KIND_REORDERED: "has its fields in another order",
    pb.DIFFERENCE_KIND_UNSETTLED: "unsettled",
}


@examples(
    "sluice verify orders",
    "sluice verify orders --at latest --show",
    "sluice verify orders --repair",
    "sluice verify orders --tables 'shop.*' -o json",
)
@connected
def verify(
    connection: Connection,
    changefeed: ChangefeedArgument,
    *,
    tables: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only tables of this pattern, such as 'shop.*'; may be repeated."),
    ] = None,
    max_differences: Annotated[
        int, typer.Option(min=1, max=1000, help="Different documents of a table after which its comparison ends.")
    ] = 20,
    parallelism: Annotated[int, typer.Option(min=1, max=64, help="Ranges read at the same time.")] = 4,
    ignore_field_order: Annotated[
        bool, typer.Option("--ignore-field-order", help="Ignore the order of fields in documents.")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Have rows that differ written as the source has them, then compare them again."),
    ] = False,
    at: Annotated[
        str,
        typer.Option(metavar="latest|TIME", help="Compare at a sync point: the latest, or the source's time of one."),
    ] = "",
    show: Annotated[
        bool, typer.Option("--show", help="Show the fields and values that differ, not the digests alone.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare source and target, and repair rows that differ.

    Tables, options, indexes and every document are compared. It may run during replication.

    With --repair the nodes that replicate the tables write the rows that differ, so the changefeed has to be running.

    The exit code is 0 without unexpected differences, 1 if something differs or kept changing, or if there is no table to compare.
    """
    request = pb.VerifyChangefeedRequest(
        changefeed=changefeed,
        tables=tables or [],
        max_differences=max_differences,
        parallelism=parallelism,
        ignore_field_order=ignore_field_order,
        repair=repair,
        at=at,
        show=show,
    )
    found, summary = _followed(connection.stream(connection.verifications.VerifyChangefeed, request))
    if tables and not found:
        raise Failure(ExitCode.NOT_FOUND, f"changefeed {changefeed!r} has no table that matches {', '.join(tables)}")
    found.sort(key=lambda table: table.name)
    if output is Output.NAME:
        print_messages(found, _COLUMNS, output, empty="")
    elif output.for_people:
        print_messages(found, _COLUMNS, output, empty="no tables")
        for line in _explained(found):
            print_line(line)
    else:
        print_document(plain(summary) | {"tables": [plain(table) for table in found]}, output)
    if summary.repaired and output.for_people:
        print_line(f"repaired, and equal now: {counted(summary.repaired, 'document')}")
    if not summary.succeeded:
        raise Failure(ExitCode.FAILED, _conclusion(found, summary))
    if output.for_people:
        print_line(_conclusion(found, summary))


def _followed(events: Iterable[pb.VerifyEvent]) -> tuple[list[pb.TableVerification], pb.VerifySummary]:
    """Collects the events. A terminal gets a progress bar on standard error; standard output is for the result."""
    from rich.console import Console  # noqa: PLC0415 - only this command draws a bar
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415 - as above

    tables: list[pb.TableVerification] = []
    summary: pb.VerifySummary | None = None
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[documents]:,} documents"),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as bar:
        task = bar.add_task("comparing", total=None, documents=0)
        for event in events:
            match event.WhichOneof("event"):
                case "progress":
                    bar.update(task, **_shown(event.progress))
                case "table":
                    tables.append(event.table)
                case "summary":
                    summary = event.summary
    if summary is None:
        raise Failure(ExitCode.UNREACHABLE, "the server ended the verification early; run the command again")
    return tables, summary


def _shown(progress: pb.VerifyProgress) -> dict[str, Any]:
    return {
        "description": f"{progress.tables_done} of {progress.tables} tables",
        "completed": progress.ranges_done,
        "total": progress.ranges or None,
        "documents": progress.documents,
    }


def _result(table: pb.TableVerification, aspect: str) -> Styled:
    outcome = next((each.outcome for each in table.aspects if each.aspect == aspect), None)
    return Styled("-") if outcome is None else Styled(*_WORDS[outcome])


def _sources(table: pb.TableVerification) -> str:
    return "=" if list(table.sources) == [table.name] else ", ".join(table.sources) or "-"


def _count(table: pb.TableVerification) -> str:
    if not table.HasField("documents"):
        return "-"
    source, target = table.documents.source, table.documents.target
    return f"{source:,}" if source == target else f"{source:,} / {target:,}"


_COLUMNS: Sequence[Column] = (
    Column("TABLE", lambda table: table.name),
    Column("SOURCE", _sources, optional=True),
    Column("COUNT", _count, right=True),
    Column("DOCUMENTS", lambda table: _result(table, "documents")),
    Column("OPTIONS", lambda table: _result(table, "options")),
    Column("INDEXES", lambda table: _result(table, "indexes")),
    Column("OUTCOME", lambda table: Styled(*_WORDS[table.outcome])),
)


def _explained(tables: Iterable[pb.TableVerification]) -> Iterator[str]:
    for table in tables:
        if table.outcome == pb.VERIFY_OUTCOME_EQUAL:
            continue
        yield ""
        yield table.name
        for aspect in table.aspects:
            for detail in aspect.details:
                yield f"  {aspect.aspect}: {detail}"
        for difference in table.documents.differences:
            yield f"    {difference.key} {_SAID[difference.kind]}: {'; '.join(difference.details) or _digests(difference)}"


def _digests(difference: pb.DocumentDifference) -> str:
    sides = (("source", difference.source), ("target", difference.target))
    return ", ".join(f"{side} {digest}" for side, digest in sides if digest)


def _conclusion(tables: Sequence[pb.TableVerification], summary: pb.VerifySummary) -> str:
    def count(outcome: pb.VerifyOutcome) -> int:
        return sum(table.outcome == outcome for table in tables)

    if not tables:
        return "nothing was compared: neither side has a table that the changefeed replicates; check filter.tables and routes"
    if summary.outcome == pb.VERIFY_OUTCOME_EQUAL:
        when = f" at {summary.source_ts} and {summary.target_ts}" if summary.source_ts else ""
        return f"source and target are identical{when}: {counted(len(tables), 'table')}, {counted(summary.documents, 'document')}"
    parts = [f"{count(outcome)} {word}" for outcome, (word, _) in _WORDS.items() if count(outcome)]
    return f"{counted(len(tables), 'table')}: {', '.join(parts)}"
