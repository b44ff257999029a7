"""`Commands`, `connected`, `reported`, `confirm`: what all commands share: help in words, the options for the server, failures, confirmations.

The shell completes ids as the server has them now. A completion has no place for an error: without an answer within a second or two there is
nothing to complete.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from contextlib import ContextDecorator, suppress
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.errors import ConfigurationError, SluiceError
from cli.channel import Connection, current_address
from cli.output import ExitCode, Failure, Output

_SECONDS = 2.0

Complete: TypeAlias = Callable[[typer.Context, str], list[str]]


def _completing(found: Callable[[Connection, dict[str, Any]], Iterable[str]]) -> Complete:
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        flags = {name: ctx.params.get(name) for name in ("server", "token_file", "ca", "cert", "key")}
        try:
            with Connection(current_address(flags)) as connection:
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
    request = pb.ListTablesRequest(changefeed=str(given.get("id") or given.get("changefeed") or ""))
    return [table.name for table in connection.stream(connection.tables.ListTables, request, timeout=_SECONDS)]


changefeeds, nodes, tables = _completing(_changefeeds), _completing(_nodes), _completing(_tables)


_PANEL = "Server"

_OPTIONS: dict[str, tuple[Any, Any]] = {
    "server": (
        Annotated[
            str | None,
            typer.Option(metavar="HOST:PORT", help="Admin API of a node. Or SLUICE_SERVER.", rich_help_panel=_PANEL),
        ],
        None,
    ),
    "token_file": (
        Annotated[Path | None, typer.Option(help="File with a token. Or SLUICE_TOKEN_FILE.", rich_help_panel=_PANEL)],
        None,
    ),
    "ca": (
        Annotated[
            Path | None, typer.Option(help="CA of the server's certificate; enables TLS.", rich_help_panel=_PANEL)
        ],
        None,
    ),
    "cert": (Annotated[Path | None, typer.Option(help="Client certificate.", rich_help_panel=_PANEL)], None),
    "key": (Annotated[Path | None, typer.Option(help="Key of the client certificate.", rich_help_panel=_PANEL)], None),
}

OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format; json and yaml are for programs.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the change has taken effect.")]
TimeoutOption = Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Longest time to wait.")]
ChangefeedArgument = Annotated[
    str, typer.Argument(help="Id of a changefeed.", metavar="CHANGEFEED", autocompletion=changefeeds)
]

Function = TypeVar("Function", bound=Callable[..., Any])

_WORDS = {
    "bool": "",
    "str": "TEXT",
    "int": "NUMBER",
    "int range": "NUMBER",
    "float": "NUMBER",
    "path": "FILE",
    "list[str]": "TEXT",
}


def _in_words(parameters: list[Any], ctx: Any) -> list[Any]:
    """The help tells what kind of value an option takes in words, where typer tells a type of Python: `<str>`."""
    for each in parameters:
        if isinstance(each, TyperOption) and each.metavar is None:
            each.metavar = _WORDS.get(each.display_type(ctx).strip("<>"))
        elif isinstance(each, TyperArgument):
            each.display_type_rich = lambda _=None, **__: None  # type: ignore[method-assign]  # its name says what it is
    return parameters


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _in_words(super().get_params(ctx), ctx)


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _in_words(super().get_params(ctx), ctx)


class Commands(typer.Typer):
    """A group of commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=_Group, no_args_is_help=True, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Function], Function]:
        return super().command(name, cls=_Command, **settings)


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Gives the command a `Connection` as its first argument, and the options for the server."""

    @wraps(command)
    def run(**arguments: Any) -> None:
        flags = {name: arguments.pop(name) for name in _OPTIONS}
        with reported(), Connection(current_address(flags)) as connection:
            command(connection, **arguments)

    hints = get_type_hints(command, include_extras=True)
    own = list(inspect.signature(command).parameters.values())[1:]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _OPTIONS.items()
    ]
    parameters = [
        each.replace(annotation=hints[each.name], kind=inspect.Parameter.KEYWORD_ONLY) for each in own
    ] + shared
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


def confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure(ExitCode.USAGE, f"{question} There is no terminal to ask on; confirm with --yes.")
    if not typer.confirm(question):
        raise Failure(ExitCode.FAILED, "nothing was changed")


def _end(code: ExitCode, lines: tuple[str, ...]) -> None:
    """The exit code tells of the failure even if standard error takes no text."""
    first, *rest = lines
    with suppress(OSError):
        typer.secho(f"sluice: {first}", err=True, fg=typer.colors.RED if sys.stderr.isatty() else None)
        for line in rest:
            typer.echo(line, err=True)
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
