"""`CommandGroup`, `Leaf`: the commands as a tree. A command's module is loaded when the command is called or its own help is shown, so that every other command is quick.

Help is plain text, 80 columns wide, in the order of use: what to type, what it does, examples, then options.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, get_args

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

HELP_FLAGS = {"help_option_names": ["-h", "--help"]}

_ARGUMENTS, _OPTIONS = "Arguments", "Options"
_WORDS = {
    "str": "TEXT",
    "int": "NUMBER",
    "int range": "NUMBER",
    "float": "NUMBER",
    "float range": "NUMBER",
    "path": "FILE",
    "list[str]": "TEXT",
}

Function = TypeVar("Function", bound=Callable[..., Any])


def examples(*lines: str) -> Callable[[Function], Function]:
    """Of a command, for its help. A test runs each of them."""

    def decorate(function: Function) -> Function:
        function.__dict__["examples"] = lines
        return function

    return decorate


@dataclass(frozen=True, slots=True)
class Leaf:
    """A command: a function of a module, and what the help of its group says of it, which is the first line of its docstring."""

    module: str
    function: str
    summary: str

    def loaded(self, name: str) -> SingleCommand:
        function = getattr(import_module(f"cli.commands.{self.module}"), self.function)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name, cls=SingleCommand, context_settings=HELP_FLAGS)(function)
        command = get_command(alone)
        assert isinstance(command, SingleCommand)
        gc.enable()
        command.examples = function.__dict__.get("examples", ())
        return command


Members: TypeAlias = "Mapping[str, Leaf | Branch]"


@dataclass(frozen=True, slots=True)
class Branch:
    """A group of commands."""

    summary: str
    members: Members

    def loaded(self, name: str) -> CommandGroup:
        return CommandGroup(self.members, name=name, help=self.summary)


class _Readable:
    """A command whose help is for people."""

    examples: Sequence[str] = ()

    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # a mixin
        for each in found:
            _in_words(each, ctx)
            value = _Value.of(each)
            if value is not None:
                each.get_runtime_param = lambda value=value: value
        return found

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"  {line}\n")
        self.format_options(ctx, formatter)

    def format_options(self: Any, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {_ARGUMENTS: [], _OPTIONS: []}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is not None:
                if each.param_type_name == "argument":
                    record = record[0], record[1].removesuffix("  [required]")
                other = _ARGUMENTS if each.param_type_name == "argument" else _OPTIONS
                panels.setdefault(getattr(each, "rich_help_panel", None) or other, []).append(record)
        for panel, records in panels.items():
            if records:
                with formatter.section(panel):
                    formatter.write_dl(records)


def _in_words(parameter: Any, ctx: Any) -> None:
    """What kind of value it takes, and in which form, where typer shows `<str>`, `{FILE}...` and `x>=0.1`."""
    shown: dict[str, str | None] = {"_get_number_range_help_str": None}
    if isinstance(parameter.default, float):
        shown["_get_default_string"] = f"{parameter.default:g}"
    if isinstance(parameter, TyperOption):
        choices = parameter.type_descriptor.choices
        kind = "|".join(choices) if choices else _WORDS.get(parameter.display_type(ctx).strip("<>"), "")
        shown["display_type_rich"] = parameter.metavar or kind
    elif isinstance(parameter, TyperArgument):
        name = f"{parameter.display_name_raw}{'...' if parameter.nargs != 1 else ''}"
        usage = name if parameter.required else f"[{name}]"
        shown |= {"display_type_rich": "", "_rich_display_name": name, "_usage_display_name": usage}
    for method, text in shown.items():
        setattr(parameter, method, lambda *_, text=text, **__: text)


@dataclass(frozen=True, slots=True)
class _Value:
    """Reads an option's or argument's text. Typer's own way loads pydantic, which is a third of the time of a command."""

    kind: Any
    least: float | None
    most: float | None

    @staticmethod
    def of(parameter: Any) -> _Value | None:
        """None: of a kind that is left to typer."""
        declared = parameter.type_descriptor
        kind = get_args(declared.annotation)[0] if declared.is_list else declared.annotation
        if not isinstance(kind, type) or not issubclass(kind, bool | str | int | float | Path):
            return None
        return _Value(kind, declared.parameter_info.min, declared.parameter_info.max)

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if param.multiple or param.nargs == -1:
            return tuple(self._read(each, param, ctx) for each in value or ())
        return None if value is None else self._read(value, param, ctx)

    def _read(self, value: Any, param: Any, ctx: Any) -> Any:
        if isinstance(value, self.kind):
            return value
        try:
            read = self.kind(value)
        except ValueError:
            expected = f"one of {', '.join(map(str, self.kind))}" if issubclass(self.kind, Enum) else "a number"
            raise typer.BadParameter(f"{value!r} is not {expected}.", ctx, param) from None
        below, above = self.least is not None and read < self.least, self.most is not None and read > self.most
        if below or above:
            bound = f"at least {self.least:g}" if below else f"at most {self.most:g}"
            raise typer.BadParameter(f"{value} is not {bound}.", ctx, param)
        return read


class SingleCommand(_Readable, TyperCommand):
    pass


class CommandGroup(_Readable, TyperGroup):
    def __init__(self, members: Members, **settings: Any) -> None:
        form = {"options_metavar": "", "subcommand_metavar": "COMMAND", "context_settings": HELP_FLAGS}
        given = {"no_args_is_help": True, "rich_markup_mode": None, **form, **settings}
        super().__init__(**given)
        self._members = members

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer determines it
        return list(self._members)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - as above
        found = self._members.get(cmd_name)
        return None if found is None else found.loaded(cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        option = args[0].partition("=")[0] if args else ""
        known = {name for each in self.get_params(ctx) for name in each.opts}
        if option.startswith("-") and option not in known and not ctx.resilient_parsing:
            ctx.fail(
                f"No such option: {option}. Options stand after the command: sluice changefeed list --server HOST:PORT"
            )
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self._members and (near := get_close_matches(args[0], self._members)):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(map(repr, near))}?")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, member.summary) for name, member in self._members.items()])
        super().format_options(ctx, formatter)
