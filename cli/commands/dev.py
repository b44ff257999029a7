"""`sluice dev`: a complete setup on this machine, to try Sluice."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer
from rich.console import Console

from changefeed.errors import ConfigurationError
from cli.command import Commands, reported
from cli.output import ExitCode, Failure

app = Commands(help="Try Sluice with a complete setup on this machine.")


@app.command(epilog="sluice dev up")
def up() -> None:
    """Start etcd, a source, a target and a node until Ctrl-C; print their addresses and commands to try."""
    with reported():
        _devstack("demo.playground").keep(Console())


@app.command(epilog="sluice dev demo")
def demo(
    *,
    files: Annotated[bool, typer.Option("--files", help="Into files, from which a target is made at the end.")] = False,
    kafka: Annotated[bool, typer.Option("--kafka", help="The same through topics of Kafka.")] = False,
) -> None:
    """Replicate a small shop whose schema changes, and compare both sides at the end."""
    with reported():
        if files and kafka:
            raise ConfigurationError(["--files, --kafka: one of them"])
        if not _devstack("demo.demo").run(Console(), files=files, kafka=kafka):
            raise Failure(ExitCode.FAILED, "source and target differ")


def _devstack(module: str) -> ModuleType:
    """The development stack is not part of the wheel; in a checkout it is beside the packages."""
    beside = str(Path(__file__).resolve().parents[2])
    if beside not in sys.path:
        sys.path.append(beside)
    try:
        return import_module(f"devstack.{module}")
    except ModuleNotFoundError as error:
        raise Failure(
            ExitCode.USAGE,
            f"the development stack is not installed here ({error.name} is missing)",
            "run this in a checkout, after `make setup`",
        ) from None
