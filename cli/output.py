"""`Output`: the output formats of a command, tables for people, JSON and YAML for programs. `Failure`: what ends a command, with an exit code.

For programs the names are those of the API, times are ISO 8601, durations are seconds, absent values are null. New releases only add fields.

    1 failed         the server refused the request, or it did not take effect in time
    2 usage          the command line or the given configuration is invalid
    3 not found      there is no such changefeed, node or table
    4 conflict       another user changed the same object, or it exists already
    5 unreachable    the server, or its etcd, does not answer
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

import typer
import yaml
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text


class ExitCode(IntEnum):
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5


class Failure(Exception):
    """`lines` are the text for the user; the first one names the failure."""

    def __init__(self, exit_code: ExitCode, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.exit_code = exit_code
        self.lines = lines


_NO_WIDTH = 10_000


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class Column:
    """`of` returns the cell. A `rigid` column is never wrapped; an `optional` one is left out if the terminal is too narrow."""

    name: str
    of: Callable[[Any], str | Text]
    right: bool = False
    rigid: bool = True
    optional: bool = False


def console() -> Console:
    """A pipe gets a very large width, so that nothing is cut or wrapped."""
    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=_NO_WIDTH)


def print_messages(messages: Iterable[Message], columns: Sequence[Column], output: Output, *, empty: str) -> None:
    found = list(messages)
    if output is not Output.TABLE:
        print_document([plain(message) for message in found], output)
    elif not found:
        print_line(empty)
    else:
        print_rows(found, columns)


def print_rows(rows: Sequence[Any], columns: Sequence[Column]) -> None:
    _print_table(_fitting(rows, list(columns)))


def print_document(value: Any, output: Output) -> None:
    if output is Output.JSON:
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    else:
        yaml.safe_dump(value, sys.stdout, sort_keys=False, allow_unicode=True, explicit_start=True)
    sys.stdout.flush()


def print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def print_note(note: str) -> None:
    """On standard error, beside what a program reads."""
    typer.echo(f"sluice: {note}", err=True)


def print_warnings(warnings: Iterable[str]) -> None:
    """Writes to standard error, so that the output stays readable for programs."""
    for warning in warnings:
        typer.secho(f"sluice: warning: {warning}", err=True, fg=typer.colors.YELLOW if sys.stderr.isatty() else None)


def print_facts(facts: Sequence[tuple[str, str | Text]]) -> None:
    _print_table(facts_table(facts))


def facts_table(facts: Sequence[tuple[str, str | Text]]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        if value:
            table.add_row(name, value)
    return table


def plain(message: Message) -> dict[str, Any]:
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.is_repeated:
        return [plain(each) if isinstance(each, Message) else each for each in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    if field.message_type is not None:
        return _of_message(value)
    if field.enum_type is not None:
        prefix = field.enum_type.values[0].name.removesuffix("UNSPECIFIED")
        return field.enum_type.values_by_number[value].name.removeprefix(prefix).lower()
    if field.name == "configuration":
        return yaml.safe_load(value)
    return value


def _of_message(value: Message) -> Any:
    if isinstance(value, Timestamp):
        return value.ToJsonString()
    if isinstance(value, Duration):
        return value.seconds + value.nanos / 1e9
    return plain(value)


def _fitting(messages: Sequence[Any], columns: list[Column]) -> Table:
    out = console()
    table = _table(messages, columns)
    unbounded = out.options.update(max_width=_NO_WIDTH)
    while out.measure(table, options=unbounded).maximum > out.width:
        dropped = next((column for column in reversed(columns) if column.optional), None)
        if dropped is None:
            break
        columns.remove(dropped)
        table = _table(messages, columns)
    return table


def _table(messages: Sequence[Any], columns: Sequence[Column]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        justify: JustifyMethod = "right" if column.right else "left"
        table.add_column(column.name, justify=justify, no_wrap=column.rigid, overflow="fold")
    for message in messages:
        table.add_row(*(column.of(message) for column in columns))
    return table


def _print_table(table: Table) -> None:
    out = console()
    with out.capture() as captured:
        out.print(table)
    for line in captured.get().splitlines():
        print_line(line.rstrip())
