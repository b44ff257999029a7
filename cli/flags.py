"""`options_of`: gives a command a flag for each field of a model that has a `Flag`, and the values that the user gave.

    @options_of(NodeConfiguration)
    def server(*, given: Given) -> None: ...

Name, type, help and default are those of the field. A field of another model is a path: `etcd.user` is `--etcd-user`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from functools import wraps
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from changefeed.config.options import Flag
from cli.output import ExitCode, Failure

_GIVEN = "given"


@dataclass(frozen=True, slots=True)
class Given:
    """What the user gave by flags. `values` are by the paths of their fields, and `names` those of their flags."""

    values: Mapping[str, Any]
    names: Mapping[str, str]

    @property
    def fields(self) -> dict[str, Any]:
        """With the structure of a file."""
        fields: dict[str, Any] = {}
        for path, value in self.values.items():
            *parents, name = path.split(".")
            below = fields
            for parent in parents:
                below = below.setdefault(parent, {})
            below[name] = value
        return fields

    def by_flag(self, problem: str) -> str:
        """A mistake in a flag is told with the flag's name. Flags have commas where the file has lists."""
        path, separator, rest = problem.partition(": ")
        name = self.names.get(re.sub(r"\[\d+\]$", "", path))
        return f"{name}: {rest}" if separator and name is not None else problem


def options_of(
    model: type[BaseModel], *, only: Collection[str] = (), panel: str | None = None, defaults: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`only`: the paths of the wanted fields, instead of all. `defaults`: whether the help tells what a field is without its flag."""
    flags = {
        each.parameter: each for each in _flags(model, panel=panel, defaults=defaults) if not only or each.path in only
    }

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(*arguments: Any, **named: Any) -> None:
            values = {
                flag.path: flag.value(found)
                for name, flag in flags.items()
                if (found := named.pop(name)) not in (None, [])
            }
            names = {flag.path: flag.name for flag in flags.values() if flag.path in values}
            command(*arguments, **named, given=Given(values, names))

        hints = get_type_hints(command, include_extras=True)
        own = [
            each.replace(annotation=hints[each.name])
            for each in inspect.signature(command).parameters.values()
            if each.name != _GIVEN
        ]
        parameters = [*own, *(flag.as_parameter() for flag in flags.values())]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        del run.__wrapped__
        return run

    return decorate


@dataclass(frozen=True, slots=True, kw_only=True)
class _ModelFlag:
    path: str
    flag: Flag
    type: type
    """Of the field, without None: `str` stands for all that is written as text."""
    panel: str | None
    default: str

    @property
    def name(self) -> str:
        return "--" + (self.flag.name or self.path.replace(".", "-").replace("_", "-"))

    @property
    def parameter(self) -> str:
        return self.path.replace(".", "_")

    def as_parameter(self) -> inspect.Parameter:
        written: Any = self.type if issubclass(self.type, bool | Enum) else float if self.type is timedelta else str
        written = list[str] if self.flag.repeated else written
        help = f"{self.flag.help}{self.default and f' Default: {self.default}.'}"
        option = typer.Option(self.name, metavar=self.flag.metavar or None, help=help, rich_help_panel=self.panel)
        return inspect.Parameter(
            self.parameter, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[written | None, option]
        )

    def value(self, given: Any) -> Any:
        """As a file would have it."""
        if issubclass(self.type, Enum):
            return given.value
        if self.type is dict:
            return dict(map(self._pair, given))
        if self.type is tuple and not self.flag.repeated:
            return [part.strip() for part in given.split(",") if part.strip()]
        return given

    def _pair(self, text: str) -> tuple[str, str]:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise Failure(ExitCode.USAGE, f"{self.name}: found {text!r}; write key=value")
        return key, value


def _flags(model: type[BaseModel], *, panel: str | None, defaults: bool, at: str = "") -> Iterator[_ModelFlag]:
    for name, field in model.model_fields.items():
        flag = next((each for each in field.metadata if isinstance(each, Flag)), None)
        path, kind = f"{at}{name}", _type(field.annotation)
        if issubclass(kind, BaseModel):
            inside = flag.panel if flag is not None else panel
            yield from _flags(kind, panel=inside, defaults=defaults, at=f"{path}.")
        elif flag is not None:
            default = flag.default or _text(field) if defaults else ""
            yield _ModelFlag(path=path, flag=flag, type=kind, panel=panel, default=default)


def _type(annotation: Any) -> type:
    """`Annotated[Path, ...] | None` is a path."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _type(get_args(annotation)[0])
    if isinstance(origin, type) and origin in (tuple, dict):
        return origin
    if isinstance(annotation, type):
        return annotation
    kinds = [each for each in get_args(annotation) if each is not type(None)]
    return _type(kinds[0]) if len(kinds) == 1 else str


def _text(field: FieldInfo) -> str:
    match field.default:
        case None | False:
            return ""
        case timedelta() as span:
            return f"{span.total_seconds():g}"
        case tuple() as items:
            return ",".join(map(str, items))
        case str() as text:
            return text
        case _:
            return ""
