"""`sluice version`, `sluice help`."""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import Annotated

import typer

from cli.groups import examples
from cli.output import print_line


@examples("sluice version")
def version() -> None:
    """Show the version of this program."""
    print_line(version_of("sluice"))


@examples("sluice help", "sluice help changefeed create")
def help_(
    context: typer.Context,
    command: Annotated[list[str] | None, typer.Argument(help="Words of a command.", metavar="COMMAND")] = None,
) -> None:
    """Show the help of a command."""
    context.find_root().command.main([*(command or ()), "--help"], prog_name="sluice")
