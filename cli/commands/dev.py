"""`sluice dev`: everything on this machine, for playing."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import typer
from rich.console import Console

from cli.command import reported
from cli.failure import ExitCode, Failure

app = typer.Typer(no_args_is_help=True, help="Everything on this machine, to see Sluice at work.")


@app.command(epilog="sluice dev up")
def up() -> None:
    """Start etcd, a source, a target and a node; print where they are and what to try; keep them until Ctrl-C."""
    with reported():
        _devstack("demo.playground").keep(Console())


@app.command(epilog="sluice dev demo")
def demo() -> None:
    """Replicate a small shop whose schema changes, and compare both sides at the end."""
    with reported():
        if not _devstack("demo.demo").run(Console()):
            raise Failure(ExitCode.FAILED, "source and target differ")


def _devstack(module: str) -> ModuleType:
    """The development stack is no part of what users install: in a checkout it stands beside the packages."""
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
