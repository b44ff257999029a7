"""`connected`, `reported`, `confirm`: what commands share: the options for the server, failures, confirmations.

The shell completes ids as the server has them now. A completion has no place for an error: without an answer within a second or two there is
nothing to complete.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ContextDecorator, suppress
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_type_hints

import typer

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.errors import ConfigurationError, SluiceError
from changefeed.printable import printable
from cli import cells
from cli.channel import Connection, ServerAddress
from cli.output import ExitCode, Failure, Output, draw, page, print_messages, print_note
from cli.tables import Column, table_lines

_SECONDS = 2.0

Complete: TypeAlias = Callable[[typer.Context, str], list[str]]


def _completing(found: Callable[[Connection, dict[str, Any]], Iterable[str]]) -> Complete:
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        flags = {name: ctx.params.get(name) for name in _OPTIONS}
        try:
            with Connection(ServerAddress.found(flags, os.environ)) as connection:
                return sorted(each for each in found(connection, ctx.params) if each.startswith(incomplete))
        except (Failure, SluiceError):
            return []

    return complete


def _changefeeds(connection: Connection, _given: dict[str, Any]) -> Iterable[str]:
    answer = connection.ask(connection.changefeeds.ListChangefeeds, pb.ListChangefeedsRequest(), timeout=_SECONDS)
    return [feed.id for feed in answer.changefeeds]


def _nodes(connection: Connection, _given: dict[str, Any]) -> Iterable[str]:
    answer = connection.ask(connection.nodes.ListNodes, pb.ListNodesRequest(), timeout=_SECONDS)
    return [node.id for node in answer.nodes]


def _tables(connection: Connection, given: dict[str, Any]) -> Iterable[str]:
    changefeed = str(given.get("id") or given.get("changefeed") or "")
    return [table.name for table in connection.tables_of(changefeed, timeout=_SECONDS)]


changefeeds, nodes, tables = _completing(_changefeeds), _completing(_nodes), _completing(_tables)


_PANEL = "Server"

_OPTIONS: dict[str, tuple[type, str | None, str]] = {
    "server": (str, "HOST:PORT", "Admin API of a node. Or SLUICE_SERVER."),
    "context": (str, "NAME", "Context of the configuration file."),
    "token_file": (Path, None, "File with a token. Or SLUICE_TOKEN_FILE."),
    "ca": (Path, None, "CA of the server's certificate; enables TLS."),
    "cert": (Path, None, "Client certificate."),
    "key": (Path, None, "Key of the client certificate."),
}

OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="wide: all columns; name: only ids; json and yaml are for programs.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the change has taken effect.")]
TimeoutOption = Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Longest time to wait.")]
TableArgument = Annotated[
    str, typer.Argument(help="Name at the source, or id.", metavar="TABLE", autocompletion=tables)
]
NodeArgument = Annotated[str, typer.Argument(help="Id or name of a node.", metavar="NODE", autocompletion=nodes)]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Refresh every two seconds, until Ctrl-C.")]
ChangefeedsArgument = Annotated[
    list[str], typer.Argument(help="Ids of changefeeds.", metavar="CHANGEFEED", autocompletion=changefeeds)
]
ChangefeedArgument = Annotated[
    str, typer.Argument(help="Id of a changefeed.", metavar="CHANGEFEED", autocompletion=changefeeds)
]


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Gives the command a `Connection` as its first argument, and the options for the server."""

    @wraps(command)
    def run(**arguments: Any) -> None:
        flags = {name: arguments.pop(name) for name in _OPTIONS}
        with reported(), Connection(ServerAddress.found(flags, os.environ)) as connection:
            command(connection, **arguments)

    hints = get_type_hints(command, include_extras=True)
    own = list(inspect.signature(command).parameters.values())[1:]
    parameters = [each.replace(annotation=hints[each.name], kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    for name, (kind, metavar, about) in _OPTIONS.items():
        option = typer.Option(metavar=metavar, help=about, rich_help_panel=_PANEL)
        hint = Annotated[kind | None, option]  # type: ignore[valid-type]  # typer reads it
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    del run.__wrapped__
    return run


class reported(ContextDecorator):  # noqa: N801 - reads as a function
    """Prints a failure and ends the command with its exit code; any other exception is a bug and shows its traceback."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        match error:
            case Failure():
                _end(error.exit_code, error.lines)
            case ConfigurationError():
                _end(ExitCode.USAGE, error.problems)
            case SluiceError():
                _end(ExitCode.FAILED, (str(error),))
            case BrokenPipeError():
                raise SystemExit(0)


_WATCH_SECONDS = 2.0


def listed(
    ask: Callable[[], Sequence[Any]], columns: Sequence[Column], output: Output, *, watch: bool, empty: str
) -> None:
    """Prints a list; with `watch` again and again, in place on a terminal."""
    if not watch:
        found = ask()
        print_messages(found, columns, output, empty=empty)
        if stale := cells.as_of(found):
            print_note(stale)
        return
    with suppress(KeyboardInterrupt):
        if output.for_people and sys.stdout.isatty():
            draw(table_lines(rows, columns, page(output)) if rows else iter([empty]) for rows in _again(ask))
        for rows in _again(ask):
            print_messages(rows, columns, output, empty=empty)


def _again(ask: Callable[[], Sequence[Any]]) -> Iterator[Sequence[Any]]:
    while True:
        yield ask()
        time.sleep(_WATCH_SECONDS)


def confirm(question: str, *, yes: bool) -> None:
    """Its object has been looked up: nobody confirms what does not exist."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure(ExitCode.USAGE, "There is no terminal to ask on; confirm with --yes.")
    if not typer.confirm(printable(question)):
        raise Failure(ExitCode.FAILED, "nothing was changed")


def _end(code: ExitCode, lines: tuple[str, ...]) -> None:
    """The exit code tells of the failure even if standard error takes no text."""
    first, *rest = lines
    with suppress(OSError):
        typer.secho(f"sluice: {printable(first)}", err=True, fg=typer.colors.RED if sys.stderr.isatty() else None)
        for line in rest:
            typer.echo(printable(line), err=True)
    raise SystemExit(int(code))


def read_configuration(file: str | None, config: str | None, verb: str) -> str:
    if (file is None) == (config is None):
        raise Failure(ExitCode.USAGE, f"give one configuration file to {verb}, as an argument or with --config")
    path = file or config or ""
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise Failure(ExitCode.USAGE, f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Failure(ExitCode.USAGE, f"{path}: is not UTF-8 text") from None
