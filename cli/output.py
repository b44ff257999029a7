"""`Output`: the output formats of a command: tables for people, JSON, YAML and names for programs. `Failure`: what ends a command, with an exit code.

For programs the names are those of the API, times are ISO 8601, durations are seconds, absent values are null. New releases only add fields.

    1 failed         the server refused the request, or it did not take effect in time
    2 usage          the command line or the given configuration is invalid
    3 not found      there is no such changefeed, node or table
    4 conflict       another user changed the same object, or it exists already
    5 unreachable    the server, or its etcd, does not answer
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from enum import IntEnum, StrEnum
from typing import Any

import typer
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from changefeed.printable import printable
from cli.tables import Cell, Column, Page, fact_lines, table_lines


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


class Output(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    """A table with all columns, however wide."""
    NAME = "name"
    """The ids alone, a line each."""
    JSON = "json"
    YAML = "yaml"

    @property
    def for_people(self) -> bool:
        return self in (Output.TABLE, Output.WIDE)


def page(output: Output = Output.TABLE) -> Page:
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal and output is not Output.WIDE else None
    return Page(width, terminal and not os.environ.get("NO_COLOR"))


def print_messages(messages: Iterable[Message], columns: Sequence[Column], output: Output, *, empty: str) -> None:
    """`-o name` prints what the first column shows."""
    found = list(messages)
    if output is Output.NAME:
        for message in found:
            print_line(str(columns[0].of(message)))
    elif not output.for_people:
        print_document([plain(message) for message in found], output)
    elif not found:
        print_line(empty)
    else:
        print_rows(found, columns, output)


def print_rows(rows: Sequence[Any], columns: Sequence[Column], output: Output = Output.TABLE) -> None:
    _print_lines(table_lines(rows, columns, page(output)))


def print_document(value: Any, output: Output) -> None:
    if output is Output.NAME:
        if not isinstance(value, dict) or "id" not in value:
            raise Failure(ExitCode.USAGE, "-o name: the result of this command has no name; use json or yaml")
        print_line(value["id"])
    elif output is Output.YAML:
        many = isinstance(value, list) and len(value) > _MANY
        sys.stdout.write("---\n" + ("".join(map(_item, value)) if many else _yaml(value)))
    else:
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    sys.stdout.flush()


_MANY = 200
"""Items of a list. More are read by programs, and PyYAML's block style takes a second for 4,000 tables."""

_EXPONENT = re.compile(r"\de[-+]\d+[],}]")


def _item(value: Any) -> str:
    """A line of JSON, which is YAML except for characters that are not printable and for numbers such as 5e-05."""
    text = json.dumps(value, ensure_ascii=False)
    return f"- {text}\n" if text.isprintable() and not _EXPONENT.search(text) else _yaml([value])


def _yaml(value: Any) -> str:
    import yaml  # noqa: PLC0415 - most commands print none

    return str(yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True))


def print_line(line: str) -> None:
    _print_lines((printable(line),))


def print_note(note: str) -> None:
    """On standard error, beside what a program reads."""
    typer.echo(f"sluice: {printable(note)}", err=True)


def print_warnings(warnings: Iterable[str]) -> None:
    """Writes to standard error, so that the output stays readable for programs."""
    for warning in warnings:
        colour = typer.colors.YELLOW if sys.stderr.isatty() else None
        typer.secho(f"sluice: warning: {printable(warning)}", err=True, fg=colour)


def print_facts(facts: Sequence[tuple[str, Cell]]) -> None:
    _print_lines(fact_lines(facts, page()))


def draw(frames: Iterable[Iterable[str]]) -> None:
    """Each in the place of the one before; what is longer than the terminal is cut at its end."""
    drawn = 0
    for frame in frames:
        lines = list(frame)[: shutil.get_terminal_size().lines - 1]
        up = f"\x1b[{drawn}A" if drawn else ""
        sys.stdout.write(f"{up}\x1b[J" + "".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        drawn = len(lines)


def plain(message: Message) -> dict[str, Any]:
    """A position is followed by its time, as `checkpoint` by `checkpoint_time`."""
    fields: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        fields[field.name] = _value(message, field)
        if field.name in _POSITIONS:
            fields[f"{field.name}_time"] = time_of(fields[field.name]) or None
    return fields


_POSITIONS = frozenset({"checkpoint", "resolved", "barrier", "position", "first_position", "schema_valid_from"})


def time_of(position: str) -> str:
    """The time of a position, which is seconds since 1970 and a counter, in ISO 8601."""
    if not position:
        return ""
    stamp = Timestamp(seconds=int(position.partition(".")[0]))
    return stamp.ToJsonString()


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
        import yaml  # noqa: PLC0415 - most commands print none

        return yaml.load(value, yaml.CSafeLoader)
    return value


def _of_message(value: Message) -> Any:
    if isinstance(value, Timestamp):
        return value.ToJsonString()
    if isinstance(value, Duration):
        return value.seconds + value.nanos / 1e9
    return plain(value)


def _print_lines(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
