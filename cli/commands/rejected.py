"""`sluice table rejected`, `retry-rejected`, `drop-rejected`: the rows that the target rejects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.printable import counted
from cli import cells, command
from cli.channel import Connection
from cli.command import (
    ChangefeedArgument,
    OutputOption,
    TableArgument,
    YesOption,
    confirm,
    connected,
)
from cli.groups import examples
from cli.output import Output, print_line, print_messages
from cli.tables import Column

KeysArgument = Annotated[
    list[str] | None,
    typer.Argument(help="Keys as listed, or _ids as Extended JSON or plain text.", metavar="KEY", show_default=False),
]


def _tried(row: pb.RejectedRow) -> str:
    return f"{row.tries:,}, again soon" if row.retry_requested else f"{row.tries:,}"


_REJECTED: Sequence[Column] = (
    Column("TABLE", lambda row: row.table),
    Column("KEY", lambda row: row.key, text=True),
    Column("SINCE", lambda row: cells.moment(row, "first_rejected_at")),
    Column("TRIED LAST", lambda row: cells.moment(row, "rejected_at"), optional=True),
    Column("TRIES", _tried, right=True),
    Column("ERROR", lambda row: row.error, text=True),
)


@examples("sluice table rejected orders", "sluice table rejected orders shop.items -o json")
@connected
def rejected(
    connection: Connection,
    changefeed: ChangefeedArgument,
    table: Annotated[
        str,
        typer.Argument(
            help="Name at the source, or id.", metavar="TABLE", show_default=False, autocompletion=command.tables
        ),
    ] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """List the rows that the target rejects, and why."""
    request = pb.ListRejectedRowsRequest(changefeed=changefeed, table=table)
    found = connection.stream(connection.tables.ListRejectedRows, request)
    whose = f"table {table} of changefeed {changefeed}" if table else f"changefeed {changefeed}"
    print_messages(found, _REJECTED, output, empty=f"{whose} has no rejected rows")


@examples("sluice table retry-rejected orders shop.items", "sluice table retry-rejected orders shop.items 4711")
@connected
def retry_rejected(
    connection: Connection, changefeed: ChangefeedArgument, table: TableArgument, keys: KeysArgument = None
) -> None:
    """Write rejected rows again.

    As the source has them now: all of the table, or those with the given keys.
    """
    request = pb.RetryRejectedRowsRequest(changefeed=changefeed, table=table, keys=keys or ())
    answer = connection.ask(connection.tables.RetryRejectedRows, request)
    print_line(
        f"{counted(answer.rows, 'row')} of {table} will be tried again; `sluice table rejected {changefeed}` shows which are still refused"
    )


@examples("sluice table drop-rejected orders shop.items", "sluice table drop-rejected orders shop.items 4711 --yes")
@connected
def drop_rejected(
    connection: Connection,
    changefeed: ChangefeedArgument,
    table: TableArgument,
    keys: KeysArgument = None,
    yes: YesOption = False,
) -> None:
    """Forget rejected rows.

    The target keeps the rows as they are; later changes are applied as to any row.
    """
    asked = pb.ListRejectedRowsRequest(changefeed=changefeed, table=table)
    known = sum(1 for _ in connection.stream(connection.tables.ListRejectedRows, asked))
    if known:
        which = f"{len(keys):,} of {counted(known, 'rejected row')}" if keys else counted(known, "rejected row")
        confirm(f"Forget {which} of {table}? The target keeps what it has of them.", yes=yes)
    request = pb.DropRejectedRowsRequest(changefeed=changefeed, table=table, keys=keys or ())
    answer = connection.ask(connection.tables.DropRejectedRows, request)
    print_line(f"forgot {counted(answer.rows, 'rejected row')} of {table}; the target is as it was")
