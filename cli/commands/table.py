"""`sluice table` and `sluice ddl`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.printable import counted, sized
from cli import cells, command
from cli.channel import Connection
from cli.command import (
    ChangefeedArgument,
    NodeArgument,
    OutputOption,
    TableArgument,
    WatchOption,
    YesOption,
    confirm,
    connected,
    listed,
)
from cli.groups import examples
from cli.output import Output, plain, print_document, print_line, print_warnings
from cli.tables import Column

TablesArgument = Annotated[
    list[str], typer.Argument(help="Names at the source, or ids.", metavar="TABLE", autocompletion=command.tables)
]


_OBEY_SECONDS = 30.0


class TableOrder(StrEnum):
    NAME = "name"
    LAG = "lag"
    STATE = "state"
    NODE = "node"


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
    return f"{counted(table.rows_to_repair, 'row')} to be repaired" if table.rows_to_repair else ""


def _subject(ddl: pb.Ddl) -> str:
    return f"{ddl.table} to {ddl.renamed_to}" if ddl.renamed_to else str(ddl.table)


def _took(ddl: pb.Ddl) -> str:
    return cells.took(ddl.seen_at, ddl.done_at) if ddl.HasField("done_at") else "-"


_TABLES: Sequence[Column] = (
    Column("TABLE", lambda table: table.name),
    Column("TARGET", _target, optional=True),
    Column("NODE", lambda table: cells.dash(table.node)),
    Column("STATE", _standing),
    Column("LAG", cells.lag, right=True),
    Column("CHECKPOINT", lambda table: cells.position(table.checkpoint), optional=True),
    Column("BARRIER", lambda table: cells.position(table.barrier), optional=True),
    Column("WHY", _why, text=True),
)

_ORDERS: Mapping[TableOrder, Callable[[pb.Table], Any]] = {
    TableOrder.NAME: lambda table: table.name,
    TableOrder.LAG: lambda table: -table.lag.ToTimedelta().total_seconds(),
    TableOrder.STATE: lambda table: (table.state, table.name),
    TableOrder.NODE: lambda table: (table.node, table.name),
}

_DDLS: Sequence[Column] = (
    Column("SEEN", lambda ddl: cells.moment(ddl, "seen_at")),
    Column("DDL", lambda ddl: ddl.type),
    Column("TABLE", _subject),
    Column("STATE", lambda ddl: "refused" if ddl.HasField("refused") and ddl.state != "skipped" else ddl.state),
    Column("TOOK", _took, right=True),
    Column("WAITS FOR, OR NOTE", lambda ddl: ddl.waits_for or ddl.note, text=True),
)


@examples(
    "sluice table list orders",
    "sluice table list orders --state stopped",
    "sluice table list orders --sort lag --limit 10 --watch",
)
@connected
def list_(
    connection: Connection,
    changefeed: ChangefeedArgument,
    *,
    state: Annotated[
        str | None, typer.Option(metavar="STATE", help="Only tables in this state, as it is listed.")
    ] = None,
    sort: Annotated[TableOrder, typer.Option(help="Order of the list; lag: the largest first.")] = TableOrder.NAME,
    limit: Annotated[int | None, typer.Option(min=1, help="Show at most this many tables.")] = None,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the tables of a changefeed with their nodes and progress."""

    def tables() -> Sequence[pb.Table]:
        found = connection.tables_of(changefeed)
        wanted = [table for table in found if state is None or state in (table.state, table.trouble)]
        return sorted(wanted, key=_ORDERS[sort])[:limit]

    which = f"no table in the state {state}" if state is not None else "no tables yet"
    listed(tables, _TABLES, output, watch=watch, empty=f"changefeed {changefeed} has {which}")


@examples("sluice table move orders shop.items n2")
@connected
def move(connection: Connection, changefeed: ChangefeedArgument, table: TableArgument, node: NodeArgument) -> None:
    """Move a table to another node."""
    request = pb.MoveTableRequest(changefeed=changefeed, table=table, node=node)
    answer = connection.ask(connection.tables.MoveTable, request)
    print_line(f"table {table} moves to {answer.node}")


@examples("sluice table stop orders shop.items")
@connected
def stop(connection: Connection, changefeed: ChangefeedArgument, tables: TablesArgument) -> None:
    """Stop tables where they stand; the others go on."""
    for table in tables:
        request = pb.StopTableRequest(changefeed=changefeed, table=table)
        found = connection.ask(connection.tables.StopTable, request, timeout=_OBEY_SECONDS)
        print_line(f"table {table} is stopped at {cells.position(found.checkpoint)}")


@examples("sluice table resume orders shop.items", "sluice table resume orders shop.items shop.orders")
@connected
def resume(connection: Connection, changefeed: ChangefeedArgument, tables: TablesArgument) -> None:
    """Resume stopped tables, and try their refused schema changes again."""
    for table in tables:
        request = pb.ResumeTableRequest(changefeed=changefeed, table=table)
        found = connection.ask(connection.tables.ResumeTable, request, timeout=_OBEY_SECONDS)
        at = f" at {cells.position(found.checkpoint)}" if found.checkpoint else ""
        print_line(f"table {table} goes on{at}")


@examples("sluice table recopy orders shop.items", "sluice table recopy orders shop.items shop.orders --dry-run")
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
    """Copy tables again while the changefeed runs.

    The other tables go on. Tables that are stopped or lost can be copied, too.

    The target's table stands still meanwhile; its copy is made beside it and takes its place when it is up to date.

    A time series is dropped and copied in its place, since no server renames it. A view is replaced by its present definition.
    """
    request = pb.RecopyTablesRequest(changefeed=changefeed, tables=tables, dry_run=True)
    found = connection.ask(connection.tables.RecopyTables, request, timeout=_OBEY_SECONDS)
    print_warnings(found.warnings)
    if dry_run and not output.for_people:
        print_document(plain(found), output)
        return
    if output.for_people:
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
    if not output.for_people:
        print_document(plain(done), output)
        return
    print_line(f"the copy begins; `sluice table list {changefeed}` shows how far it is")


def _how_copied(table: pb.TableRecopy) -> str:
    size = f", {sized(table.bytes)} at the source" if table.HasField("bytes") else ""
    match table.in_place:
        case "":
            return f"{table.name} is copied anew, beside {table.target} at the target{size}"
        case "view":
            return f"{table.name} is a view; {table.target} at the target is replaced by its present definition"
        case _:
            return (
                f"{table.name} is a time series; {table.target} at the target is dropped, and copied anew in its place"
            )


@examples("sluice ddl skip orders shop.items")
@connected
def skip(
    connection: Connection,
    changefeed: ChangefeedArgument,
    ddl: Annotated[
        str, typer.Argument(help="Table (name at the source, or id) or position of the schema change.", metavar="DDL")
    ],
    yes: YesOption = False,
) -> None:
    """Continue without a schema change that the target refuses.

    Only createIndexes, dropIndexes and collMod can be skipped; the target stays without it.
    """
    known = connection.stream(connection.ddls.ListDdl, pb.ListDdlRequest(changefeed=changefeed))
    refused = [each for each in known if each.HasField("refused") and each.state not in ("done", "skipped")]
    meant = next((each for each in refused if ddl in (each.position, each.table)), None)
    what = f"the {meant.type} of {_subject(meant)}" if meant is not None else f"the refused schema change of {ddl}"
    if refused:
        confirm(f"Skip {what}? The target's table will differ from the source's.", yes=yes)
    request = pb.SkipDdlRequest(changefeed=changefeed, ddl=ddl)
    found = connection.ask(connection.ddls.SkipDdl, request, timeout=_OBEY_SECONDS)
    print_line(f"{found.type} of {_subject(found)} is {found.state}")


@examples("sluice ddl list orders", "sluice ddl list orders -o json")
@connected
def list_ddl(connection: Connection, changefeed: ChangefeedArgument, output: OutputOption = Output.TABLE) -> None:
    """List schema changes, the newest last.

    Each with its time, and with what it waits for. -o name prints positions, as `ddl skip` takes them.
    """
    found = connection.stream(connection.ddls.ListDdl, pb.ListDdlRequest(changefeed=changefeed))
    columns = (Column("POSITION", lambda ddl: ddl.position),) if output is Output.NAME else _DDLS
    listed(
        lambda: list(found), columns, output, watch=False, empty=f"changefeed {changefeed} has seen no schema change"
    )
