"""`sluice context`: which of the clusters in the configuration file the commands speak to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
import yaml

from cli.channel import configuration_file, read_contexts
from cli.command import reported
from cli.groups import examples
from cli.output import ExitCode, Failure, print_line


@examples("sluice context list")
def list_() -> None:
    """List the contexts of the configuration file."""
    with reported():
        if not _file().is_file():
            print_line(f"no contexts; there is no file {_file()}")
            return
        fields = read_contexts(_file())
        for name, context in sorted(fields.get("contexts", {}).items()):
            print_line(f"{'*' if name == fields.get('context') else ' '} {name}  {context.get('server', '')}".rstrip())


@examples("sluice context use prod")
def use(name: Annotated[str, typer.Argument(help="Name of a context.", metavar="NAME")]) -> None:
    """Choose the context that commands use from now on."""
    with reported():
        path = _file()
        fields = read_contexts(path)
        if name not in fields.get("contexts", {}):
            known = ", ".join(sorted(fields.get("contexts", {}))) or "none"
            raise Failure(ExitCode.NOT_FOUND, f"{path}: there is no context {name!r}; it has {known}")
        fields["context"] = name
        written = path.with_name(f"{path.name}.new")
        written.write_text(yaml.safe_dump(fields, sort_keys=False), encoding="utf-8")
        written.replace(path)
        print_line(f"commands use the context {name}")


def _file() -> Path:
    return configuration_file(os.environ)
