"""`sluice table` and `sluice ddl`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from cli import cells
from cli.command import ChangefeedArgument, OutputOption, connected
from cli.connection import Connection
from cli.output import Column, Output, print_line, print_messages

app = typer.Typer(no_args_is_help=True, help="List the tables of a changefeed, move one to another node.")
ddl_app = typer.Typer(no_args_is_help=True, help="List schema changes.")


def _target(table: pb.Table) -> str:
    return "=" if table.target == table.name else cells.dash(table.target)


def _standing(table: pb.Table) -> str:
    if table.HasField("copy"):
        return f"copy {cells.copy(table)}"
    if table.leaving:
        return "moving"
    if table.kind == "view":
        return "view"
    return "held" if table.held else "following"


def _subject(ddl: pb.Ddl) -> str:
    return f"{ddl.table} to {ddl.renamed_to}" if ddl.renamed_to else str(ddl.table)


def _took(ddl: pb.Ddl) -> str:
    return cells.took(ddl.seen_at, ddl.done_at) if ddl.HasField("done_at") else "-"


_TABLES: Sequence[Column] = (
    Column("TABLE", lambda table: table.name, rigid=False),
    Column("TARGET", _target, rigid=False),
    Column("NODE", lambda table: cells.dash(table.node)),
    Column("STATE", _standing),
    Column("CHECKPOINT", lambda table: cells.position(table.checkpoint)),
    Column("BARRIER", lambda table: cells.position(table.barrier), optional=True),
)

_DDLS: Sequence[Column] = (
    Column("SEEN", lambda ddl: cells.moment(ddl, "seen_at")),
    Column("DDL", lambda ddl: ddl.type),
    Column("TABLE", _subject, rigid=False),
    Column("STATE", lambda ddl: ddl.state),
    Column("TOOK", _took, right=True),
    Column("WAITS FOR, OR NOTE", lambda ddl: ddl.waits_for or ddl.note, rigid=False),
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
    table: Annotated[str, typer.Argument(help="Name at the source, or id.", metavar="TABLE")],
    node: Annotated[str, typer.Argument(help="Id or name of a node.", metavar="NODE")],
) -> None:
    """Move a table to another node."""
    request = pb.MoveTableRequest(changefeed=changefeed, table=table, node=node)
    answer = connection.ask(connection.tables.MoveTable, request)
    print_line(f"table {table} moves to {answer.node}")


@ddl_app.command("list", epilog="sluice ddl list orders\n\nsluice ddl list orders -o json")
@connected
def list_ddl(connection: Connection, changefeed: ChangefeedArgument, output: OutputOption = Output.TABLE) -> None:
    """List the DDLs, with their times and with what they wait for; the newest last."""
    found = connection.stream(connection.ddls.ListDdl, pb.ListDdlRequest(changefeed=changefeed))
    print_messages(found, _DDLS, output, empty=f"changefeed {changefeed} has seen no schema change")
