"""`sluice verify`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from admin.stubs.sluice.admin.v1 import verify_pb2 as pb
from cli.channel import Connection
from cli.command import ChangefeedArgument, OutputOption, connected
from cli.output import Column, ExitCode, Failure, Output, plain, print_document, print_line, print_messages

_WORDS = {
    pb.VERIFY_OUTCOME_EQUAL: ("equal", "green"),
    pb.VERIFY_OUTCOME_NOT_COMPARABLE: ("not comparable", "cyan"),
    pb.VERIFY_OUTCOME_UNSETTLED: ("unsettled", "yellow"),
    pb.VERIFY_OUTCOME_DIFFERENT: ("different", "red"),
}
_SAID = {
    pb.DIFFERENCE_KIND_MISSING: "missing at the target",
    pb.DIFFERENCE_KIND_EXTRA: "at the target only",
    pb.DIFFERENCE_KIND_CHANGED: "differs",
    pb.DIFFERENCE_KIND_UNSETTLED: "unsettled",
}


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
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare source and target: tables, options, indexes and every document. It may run during replication.

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
    )
    found, summary = _followed(connection.stream(connection.verifications.VerifyChangefeed, request))
    if tables and not found:
        raise Failure(ExitCode.NOT_FOUND, f"changefeed {changefeed!r} has no table that matches {', '.join(tables)}")
    found.sort(key=lambda table: table.name)
    if output is Output.TABLE:
        print_messages(found, _COLUMNS, output, empty="no tables")
        for line in _explained(found):
            print_line(line)
    else:
        print_document(plain(summary) | {"tables": [plain(table) for table in found]}, output)
    if summary.repaired and output is Output.TABLE:
        print_line(f"repaired, and equal now: {_many(summary.repaired, 'document')}")
    if not summary.succeeded:
        raise Failure(ExitCode.FAILED, _conclusion(found, summary))
    if output is Output.TABLE:
        print_line(_conclusion(found, summary))


def _followed(events: Iterable[pb.VerifyEvent]) -> tuple[list[pb.TableVerification], pb.VerifySummary]:
    """Collects the events. A terminal gets a progress bar on standard error; standard output is for the result."""
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


def _result(table: pb.TableVerification, aspect: str) -> Text:
    outcome = next((each.outcome for each in table.aspects if each.aspect == aspect), None)
    return Text("-") if outcome is None else Text(*_WORDS[outcome])


def _sources(table: pb.TableVerification) -> str:
    return "=" if list(table.sources) == [table.name] else ", ".join(table.sources) or "-"


def _count(table: pb.TableVerification) -> str:
    if not table.HasField("documents"):
        return "-"
    source, target = table.documents.source, table.documents.target
    return f"{source:,}" if source == target else f"{source:,} / {target:,}"


_COLUMNS: Sequence[Column] = (
    Column("TABLE", lambda table: table.name, rigid=False),
    Column("SOURCE", _sources, rigid=False),
    Column("COUNT", _count, right=True),
    Column("DOCUMENTS", lambda table: _result(table, "documents")),
    Column("OPTIONS", lambda table: _result(table, "options")),
    Column("INDEXES", lambda table: _result(table, "indexes")),
    Column("OUTCOME", lambda table: Text(*_WORDS[table.outcome])),
)


def _explained(tables: Iterable[pb.TableVerification]) -> Iterator[str]:
    for table in tables:
        if table.outcome == pb.VERIFY_OUTCOME_EQUAL:
            continue
        yield f"\n{table.name}"
        for aspect in table.aspects:
            for detail in aspect.details:
                yield f"  {aspect.aspect}: {detail}"
        for difference in table.documents.differences:
            details = "; ".join(difference.details)
            yield f"    {difference.key} {_SAID[difference.kind]}{f': {details}' if details else ''}"


def _conclusion(tables: Sequence[pb.TableVerification], summary: pb.VerifySummary) -> str:
    def count(outcome: pb.VerifyOutcome) -> int:
        return sum(table.outcome == outcome for table in tables)

    if not tables:
        return "nothing was compared: neither side has a table that the changefeed replicates; check filter.tables and routes"
    if summary.outcome == pb.VERIFY_OUTCOME_EQUAL:
        return f"source and target are identical: {_many(len(tables), 'table')}, {_many(summary.documents, 'document')}"
    parts = [f"{count(outcome)} {word}" for outcome, (word, _) in _WORDS.items() if count(outcome)]
    return f"{_many(len(tables), 'table')}: {', '.join(parts)}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
