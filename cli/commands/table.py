"""`sluice table` and `sluice ddl`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from cli import cells, command
from cli.channel import Connection
from cli.command import ChangefeedArgument, Commands, OutputOption, YesOption, confirm, connected
from cli.output import Column, Output, plain, print_document, print_line, print_messages, print_warnings

app = Commands(
    help="List, move, stop, resume and recopy tables, and handle the rows that the target refuses.",
)
ddl_app = Commands(help="List schema changes, skip one that the target refuses.")

TableArgument = Annotated[
    str, typer.Argument(help="Name at the source, or id.", metavar="TABLE", autocompletion=command.tables)
]
TablesArgument = Annotated[
    list[str],
    typer.Argument(help="Names at the source, or ids.", metavar="TABLE...", autocompletion=command.tables),
]

KeysArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Keys as listed, or _ids as Extended JSON or plain text.", metavar="[KEY...]", show_default=False
    ),
]

_OBEY_SECONDS = 30.0


def _target(table: pb.Table) -> str:
    return "=" if table.target == table.name else cells.dash(table.target)


def _standing(table: pb.Table) -> str:
    copied = cells.copy_bar(table.copy, cells.rows(table.kind)) if table.HasField("copy") else ""
    if copied and table.state in ("copy", ""):
        return f"copy {copied}"
    if table.state == "recopy":
        return f"recopy {copied}".rstrip()
    if table.leaving:
        return "moving"
    if table.kind == "view":
        return "view"
    return table.state or table.trouble or ("held" if table.held else "following")


def _why(table: pb.Table) -> str:
    if table.HasField("error"):
        return str(table.error.message)
    if table.HasField("target_age"):
        return f"the target's table stands still, {cells.span(table.target_age.ToTimedelta().total_seconds())} old, until its copy takes its place"
    if table.trouble == "stopped":
        return "a user stopped it"
    return f"{table.rows_to_repair:,} rows are being repaired" if table.rows_to_repair else ""


def _subject(ddl: pb.Ddl) -> str:
    return f"{ddl.table} to {ddl.renamed_to}" if ddl.renamed_to else str(ddl.table)


def _took(ddl: pb.Ddl) -> str:
    return cells.took(ddl.seen_at, ddl.done_at) if ddl.HasField("done_at") else "-"


_TABLES: Sequence[Column] = (
    Column("TABLE", lambda table: table.name, rigid=False),
    Column("TARGET", _target, rigid=False),
    Column("NODE", lambda table: cells.dash(table.node)),
    Column("STATE", _standing),
    Column("LAG", cells.lag, right=True),
    Column("CHECKPOINT", lambda table: cells.position(table.checkpoint)),
    Column("BARRIER", lambda table: cells.position(table.barrier), optional=True),
    Column("WHY", _why, rigid=False),
)

_DDLS: Sequence[Column] = (
    Column("SEEN", lambda ddl: cells.moment(ddl, "seen_at")),
    Column("DDL", lambda ddl: ddl.type),
    Column("TABLE", _subject, rigid=False),
    Column("STATE", lambda ddl: "refused" if ddl.HasField("refused") and ddl.state != "skipped" else ddl.state),
    Column("TOOK", _took, right=True),
    Column("WAITS FOR, OR NOTE", lambda ddl: ddl.waits_for or ddl.note, rigid=False),
)


def _tried(row: pb.RejectedRow) -> str:
    return f"{row.tries:,}, again soon" if row.retry_requested else f"{row.tries:,}"


_REJECTED: Sequence[Column] = (
    Column("TABLE", lambda row: row.table, rigid=False),
    Column("KEY", lambda row: row.key, rigid=False),
    Column("SINCE", lambda row: cells.moment(row, "first_rejected_at")),
    Column("TRIED LAST", lambda row: cells.moment(row, "rejected_at"), optional=True),
    Column("TRIES", _tried, right=True),
    Column("ERROR", lambda row: row.error, rigid=False),
)


@app.command("list", epilog="sluice table list orders\n\nsluice table list orders -o json")
@connected
def list_(connection: Connection, changefeed: ChangefeedArgument, output: OutputOption = Output.TABLE) -> None:
    """List the tables of a changefeed, with their nodes and checkpoints."""
    found = connection.stream(connection.tables.ListTables, pb.ListTablesRequest(changefeed=changefeed))
    print_messages(found, _TABLES, output, empty=f"changefeed {changefeed} has no tables yet")


@app.command(epilog="sluice table move orders shop.items n2")
@connected
def move(
    connection: Connection,
    changefeed: ChangefeedArgument,
    table: TableArgument,
    node: Annotated[str, typer.Argument(help="Id or name of a node.", metavar="NODE", autocompletion=command.nodes)],
) -> None:
    """Move a table to another node."""
    request = pb.MoveTableRequest(changefeed=changefeed, table=table, node=node)
    answer = connection.ask(connection.tables.MoveTable, request)
    print_line(f"table {table} moves to {answer.node}")


@app.command(epilog="sluice table stop orders shop.items")
@connected
def stop(connection: Connection, changefeed: ChangefeedArgument, table: TableArgument) -> None:
    """Stop one table where it stands; the others go on."""
    request = pb.StopTableRequest(changefeed=changefeed, table=table)
    found = connection.ask(connection.tables.StopTable, request, timeout=_OBEY_SECONDS)
    print_line(f"table {table} is stopped at {cells.position(found.checkpoint)}")


@app.command(epilog="sluice table resume orders shop.items\n\nsluice table resume orders shop.items shop.orders")
@connected
def resume(connection: Connection, changefeed: ChangefeedArgument, tables: TablesArgument) -> None:
    """Resume tables that are stopped, and try their refused schema changes again."""
    for table in tables:
        request = pb.ResumeTableRequest(changefeed=changefeed, table=table)
        found = connection.ask(connection.tables.ResumeTable, request, timeout=_OBEY_SECONDS)
        at = f" at {cells.position(found.checkpoint)}" if found.checkpoint else ""
        print_line(f"table {table} goes on{at}")


@app.command(
    epilog="sluice table recopy orders shop.items\n\nsluice table recopy orders shop.items shop.orders --dry-run"
)
@connected
def recopy(
    connection: Connection,
    changefeed: ChangefeedArgument,
    tables: TablesArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be copied and the free disk, and change nothing.")
    ] = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Copy tables anew while the others go on, also tables that are stopped or lost.

    The target's table stands still meanwhile; its copy is made beside it and takes its place when it is up to date.

    A time series is dropped and copied in its place, since no server renames it. A view is replaced by its present definition.
    """
    request = pb.RecopyTablesRequest(changefeed=changefeed, tables=tables, dry_run=True)
    found = connection.ask(connection.tables.RecopyTables, request, timeout=_OBEY_SECONDS)
    print_warnings(found.warnings)
    if dry_run and output is not Output.TABLE:
        print_document(plain(found), output)
        return
    if output is Output.TABLE:
        for table in found.tables:
            print_line(_how_copied(table))
    if dry_run:
        return
    named = ", ".join(table.name for table in found.tables)
    missing = [table.target for table in found.tables if table.in_place == "timeseries"]
    gone = f" {', '.join(missing)} is dropped first, and missing until it is copied." if missing else ""
    confirm(
        f"Copy {named} anew? Until then the target's tables stand still, and are replaced by the copies.{gone}", yes=yes
    )
    request.dry_run = False
    done = connection.ask(connection.tables.RecopyTables, request, timeout=_OBEY_SECONDS)
    if output is not Output.TABLE:
        print_document(plain(done), output)
        return
    print_line(f"the copy begins; `sluice table list {changefeed}` shows how far it is")


def _how_copied(table: pb.TableRecopy) -> str:
    size = f", {cells.size(table.bytes)} at the source" if table.HasField("bytes") else ""
    match table.in_place:
        case "":
            return f"{table.name} is copied anew, beside {table.target} at the target{size}"
        case "view":
            return f"{table.name} is a view; {table.target} at the target is replaced by its present definition"
        case _:
            return (
                f"{table.name} is a time series; {table.target} at the target is dropped, and copied anew in its place"
            )


@app.command(epilog="sluice table rejected orders\n\nsluice table rejected orders shop.items -o json")
@connected
def rejected(
    connection: Connection,
    changefeed: ChangefeedArgument,
    table: Annotated[
        str,
        typer.Argument(
            help="Name at the source, or id.",
            metavar="[TABLE]",
            show_default=False,
            autocompletion=command.tables,
        ),
    ] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """List the rows that the target refuses, with its reasons."""
    request = pb.ListRejectedRowsRequest(changefeed=changefeed, table=table)
    found = connection.stream(connection.tables.ListRejectedRows, request)
    print_messages(found, _REJECTED, output, empty=f"{_whose(changefeed, table)} has no rejected rows")


@app.command(
    "retry-rejected",
    epilog="sluice table retry-rejected orders shop.items\n\nsluice table retry-rejected orders shop.items 4711",
)
@connected
def retry_rejected(
    connection: Connection, changefeed: ChangefeedArgument, table: TableArgument, keys: KeysArgument = None
) -> None:
    """Try rejected rows again, as the source has them now. All of the table, or those with the given keys."""
    request = pb.RetryRejectedRowsRequest(changefeed=changefeed, table=table, keys=keys or ())
    answer = connection.ask(connection.tables.RetryRejectedRows, request)
    print_line(
        f"{answer.rows:,} rows of {table} will be tried again; `sluice table rejected {changefeed}` shows which are still refused"
    )


@app.command(
    "drop-rejected",
    epilog="sluice table drop-rejected orders shop.items\n\nsluice table drop-rejected orders shop.items 4711 --yes",
)
@connected
def drop_rejected(
    connection: Connection,
    changefeed: ChangefeedArgument,
    table: TableArgument,
    keys: KeysArgument = None,
    yes: YesOption = False,
) -> None:
    """Forget rejected rows. They stay as the target has them; later changes are applied as to any row."""
    which = f"{len(keys):,} rejected rows" if keys else "all rejected rows"
    confirm(f"Forget {which} of {table}? The target keeps these rows as they are, or without them.", yes=yes)
    request = pb.DropRejectedRowsRequest(changefeed=changefeed, table=table, keys=keys or ())
    answer = connection.ask(connection.tables.DropRejectedRows, request)
    print_line(f"{answer.rows:,} rejected rows of {table} are forgotten; the target's rows are as they were")


def _whose(changefeed: str, table: str) -> str:
    return f"table {table} of changefeed {changefeed}" if table else f"changefeed {changefeed}"


@ddl_app.command(epilog="sluice ddl skip orders shop.items")
@connected
def skip(
    connection: Connection,
    changefeed: ChangefeedArgument,
    ddl: Annotated[
        str, typer.Argument(help="Table (name at the source, or id) or position of the schema change.", metavar="DDL")
    ],
    yes: YesOption = False,
) -> None:
    """Go on without a refused createIndexes, dropIndexes or collMod; the target stays without it."""
    confirm(f"Skip the refused schema change of {ddl}? The target's table will differ from the source's.", yes=yes)
    request = pb.SkipDdlRequest(changefeed=changefeed, ddl=ddl)
    found = connection.ask(connection.ddls.SkipDdl, request, timeout=_OBEY_SECONDS)
    print_line(f"{found.type} of {_subject(found)} is {found.state}")


@ddl_app.command("list", epilog="sluice ddl list orders\n\nsluice ddl list orders -o json")
@connected
def list_ddl(connection: Connection, changefeed: ChangefeedArgument, output: OutputOption = Output.TABLE) -> None:
    """List the DDLs, with their times and with what they wait for; the newest last."""
    found = connection.stream(connection.ddls.ListDdl, pb.ListDdlRequest(changefeed=changefeed))
    print_messages(found, _DDLS, output, empty=f"changefeed {changefeed} has seen no schema change")
