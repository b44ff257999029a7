"""`sluice`: the command line."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from importlib.metadata import version as version_of
from io import UnsupportedOperation
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from cli.command import Commands
from cli.commands import changefeed, dev, node, sink, table
from cli.commands.cut_over import finalize, ready
from cli.commands.ensure import ensure
from cli.commands.messages import consume, read
from cli.commands.server import server
from cli.commands.verify import verify
from cli.output import ExitCode, print_line

_NOT_WRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF, errno.EFBIG})


def _version(asked: bool) -> None:
    if asked:
        print_line(version_of("sluice"))
        raise typer.Exit


app = Commands(
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Replicates MongoDB, with schema changes in exact order.",
    epilog="sluice server --etcd 127.0.0.1:2379\n\nsluice changefeed create orders.yaml\n\nsluice changefeed list",
)
changefeed.app.command(
    epilog="sluice changefeed ensure changefeeds/*.yaml\n\nsluice changefeed ensure orders.yaml --update"
)(ensure)
changefeed.app.command(epilog="sluice changefeed ready orders --within 5 && sluice changefeed finalize orders --yes")(
    ready
)
changefeed.app.command(
    epilog="sluice changefeed finalize orders --yes\n\nsluice changefeed finalize orders --block-writes"
)(finalize)
app.add_typer(changefeed.app, name="changefeed")
app.add_typer(node.app, name="node")
app.add_typer(table.app, name="table")
app.add_typer(table.ddl_app, name="ddl")
app.add_typer(sink.app, name="sink")
app.add_typer(dev.app, name="dev")
app.command(epilog="sluice server --config node.yaml\n\nsluice server --etcd etcd-1:2379 --roles owner")(server)
app.command(
    epilog="sluice verify orders\n\nsluice verify orders --repair\n\nsluice verify orders --tables 'shop.*' -o json"
)(verify)
app.command(
    epilog="sluice read file:///srv/orders --follow\n\nsluice read file:///srv/orders --to mongodb://localhost:27017"
)(read)
app.command(
    epilog="sluice consume kafka://b1:9092/shop --follow\n\n"
    "sluice consume kafka://b1:9092/shop --follow --to mongodb://localhost:27017"
)(consume)


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Show the version of this program.")
    ] = False,
) -> None:
    """The options before the command."""


@app.command()
def version() -> None:
    """Show the version of this program."""
    print_line(version_of("sluice"))


def main() -> None:
    """A standard output that takes nothing more, as that of a full disk, is a failure like any other."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - as long as the process; refuses what is written
    try:
        app(prog_name="sluice")
    except OSError as error:
        if not (error.errno in _NOT_WRITTEN or isinstance(error, UnsupportedOperation)):
            raise
        _leave_unwritten(error)


def _leave_unwritten(error: OSError) -> NoReturn:
    """Otherwise Python tries again when it exits, and shows its own traceback."""
    why = error.strerror or "it is closed"
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with suppress(OSError):
        typer.echo(f"sluice: standard output takes nothing more: {why}", err=True)
    raise SystemExit(int(ExitCode.FAILED))
