"""`sluice dev`: a complete setup on this machine, to try Sluice."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from changefeed.errors import ConfigurationError
from cli.command import reported
from cli.groups import examples
from cli.output import ExitCode, Failure


@examples("sluice dev up", "sluice dev up --data ~/sluice-playground")
def up(
    *,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY", help="Keep data and logs there, for another start; default: a temporary one."
        ),
    ] = None,
) -> None:
    """Start a complete setup on this machine, until Ctrl-C.

    Starts etcd, a source, a target and a node, and prints their addresses and commands to try.
    """
    with reported():
        _devstack("demo.playground").keep(data)


@examples("sluice dev demo")
def demo(
    *,
    files: Annotated[
        bool, typer.Option("--files", help="Replicate into files, and make the target from them at the end.")
    ] = False,
    kafka: Annotated[bool, typer.Option("--kafka", help="The same with Kafka topics.")] = False,
) -> None:
    """Replicate a small shop whose schema changes.

    Source and target are compared at the end.
    """
    with reported():
        if files and kafka:
            raise ConfigurationError(["--files, --kafka: one of them"])
        if not _devstack("demo.demo").run(files=files, kafka=kafka):
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
