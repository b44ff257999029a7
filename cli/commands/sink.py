"""`sluice sink`: what a changefeed can end in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from changefeed.config.sinks.sink_traits import SINKS
from cli.command import Commands, reported
from cli.output import Column, Output, print_document, print_rows

app = Commands(help="What a changefeed can end in.")


@dataclass(frozen=True, slots=True)
class _Line:
    sink: str
    option: str
    values: str
    default: str
    about: str


@app.command(name="list", epilog="sluice sink list\n\nsluice sink list -o json")
def list_(*, output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE) -> None:
    """List the kinds of sinks, with the options that their URIs take. It asks no node."""
    with reported():
        if output is not Output.TABLE:
            print_document(
                [
                    {"uri": sink.uri, "about": sink.about, "options": [asdict(each) for each in sink.options]}
                    for sink in SINKS.values()
                ],
                output,
            )
            return
        columns = [
            Column("sink", lambda line: line.sink),
            Column("option", lambda line: line.option),
            Column("values", lambda line: line.values),
            Column("default", lambda line: line.default),
            Column("what it is", lambda line: line.about, rigid=False),
        ]
        print_rows(list(_lines()), columns)


def _lines() -> Iterator[_Line]:
    for sink in SINKS.values():
        yield _Line(sink.uri, "", "", "", sink.about)
        for option in sink.options:
            yield _Line("", option.name, option.values, option.default, option.about)
