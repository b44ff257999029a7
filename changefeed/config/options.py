"""`Options`: the base of all models of the configuration, and the wording of mistakes in it.

A problem reads `path: what was found; what is allowed`, for example

    pipeline.order_by: found 'idd'; allowed are auto, id, table (did you mean 'id'?)

Our own validators raise a ValueError with everything after the path. Pydantic's errors are worded here, from the description of
the field or from its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, ErrorDetails, core_schema

_LONGEST = 60


class Mistake(ValueError):
    """What was found and what is allowed. The caller puts the path before it.

    It is a ValueError because pydantic collects these, so that all mistakes are reported at once.
    """


def shown(value: object) -> str:
    """A value as the user wrote it, shortened. A URI is never shown, in any field: it may contain a password."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping" if value else "{}"
    if isinstance(value, list | tuple):
        return "a list" if value else "[]"
    if isinstance(value, str) and "://" in value:
        return "a URI"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def did_you_mean(word: object, allowed: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, or an empty text if no allowed word is similar."""
    by_lower = {choice.lower(): str(choice) for choice in allowed}
    near = get_close_matches(str(word).lower(), by_lower, n=1)
    return f" (did you mean {by_lower[near[0]]!r}?)" if near else ""


T = TypeVar("T")


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, validate_by_name=False)


@dataclass(frozen=True, slots=True)
class Flag:
    """How the command line shows a field: `Annotated[str, Flag("Name of the cluster.", "NAME")]`."""

    help: str = ""
    metavar: str = ""
    _: KW_ONLY
    name: str = ""
    """Without `--`. Empty: the field's path, with hyphens."""
    default: str = ""
    """In words. Empty: as the field has it."""
    repeated: bool = False
    """The flag is written once for each item, instead of once with commas."""
    panel: str = ""
    """Of the flags for the fields inside this one."""


def parsed(kind: type[Any], written: Callable[[Any], object]) -> CoreSchema:
    """The schema of a class whose `parse` reads what a user wrote. `written`: its inverse."""

    def validate(value: object) -> Any:
        return value if isinstance(value, kind) else kind.parse(value)

    return core_schema.no_info_plain_validator_function(
        validate, serialization=core_schema.plain_serializer_function_ser_schema(written)
    )


def each_once(values: tuple[T, ...], what: str) -> tuple[T, ...]:
    seen = set[T]()
    for value in values:
        if value in seen:
            raise Mistake(f"found {shown(str(value))} twice; write each {what} once")
        seen.add(value)
    return values


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `base`, replaced by those of `over`; what is inside a mapping is replaced by itself."""
    fields = dict(base)
    for key, value in over.items():
        below = fields.get(key)
        fields[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return fields


def problems(error: ValidationError, model: type[BaseModel]) -> list[str]:
    return [f"{path_text(each['loc'])}: {_problem(each, model)}" for each in error.errors(include_url=False)]


def path_text(path: Sequence[str | int]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".") or "the configuration"


def _problem(error: ErrorDetails, model: type[BaseModel]) -> str:
    path = error["loc"]
    match error["type"]:
        case "value_error":
            return str(error["ctx"]["error"])
        case "extra_forbidden":
            keys = _keys(_field_at(model, path)[0])
            return f"unknown key; allowed are {', '.join(keys)}{did_you_mean(path[-1], keys)}"
        case "missing":
            return f"missing; {_allowed(model, path)}"
        case _:
            found = error["input"]
            choices = _choices(_annotation_at(model, path))
            return f"found {shown(found)}; {_allowed(model, path)}{did_you_mean(found, choices)}"


def _allowed(model: type[BaseModel], path: Sequence[str | int]) -> str:
    annotation = _annotation_at(model, path)
    choices = _choices(annotation)
    if choices:
        return f"allowed are {', '.join(choices)}"
    field = _field_at(model, path)[1]
    if field is not None and field.description and not (path and isinstance(path[-1], int)):
        return field.description
    inner = _model_in(annotation)
    if inner is not None:
        listed = f"allowed are the keys {', '.join(_keys(inner))}"
        return f"write a list of mappings; {listed}" if _is_list(annotation) else f"write a mapping; {listed}"
    return "write a list"


def _choices(annotation: Any) -> list[str]:
    if annotation is bool:
        return ["true", "false"]
    return (
        [str(member.value) for member in annotation]
        if isinstance(annotation, type) and issubclass(annotation, Enum)
        else []
    )


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _field_at(model: type[BaseModel], path: Iterable[str | int]) -> tuple[type[BaseModel], FieldInfo | None]:
    """The field, if there is one, and the model that has it."""
    field: FieldInfo | None = None
    for step in path:
        if isinstance(step, str):
            model = (field and _model_in(field.annotation)) or model
            field = next((each for name, each in model.model_fields.items() if step in (name, each.alias)), None)
    return model, field


def _annotation_at(model: type[BaseModel], path: Sequence[str | int]) -> Any:
    field = _field_at(model, path)[1]
    annotation = field.annotation if field else model
    return _model_in(annotation) if path and isinstance(path[-1], int) else annotation


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside an annotation such as `tuple[EventRule, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        root = annotation.model_fields.get("root")
        return _model_in(root.annotation) if root else annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)


def _is_list(annotation: Any) -> bool:
    root = (
        annotation.model_fields.get("root")
        if isinstance(annotation, type) and issubclass(annotation, BaseModel)
        else None
    )
    return getattr(root.annotation if root else annotation, "__origin__", None) is tuple
