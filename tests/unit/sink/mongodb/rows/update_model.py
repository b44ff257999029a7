"""A model of a MongoDB server's updates: the operators and expressions that the sink uses, and no others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import bson

Document: TypeAlias = dict[str, Any]
_MISSING = object()


class Refused(Exception):
    """The server refuses this update of this document."""


def apply(document: Document, operation: Mapping[str, Any] | list[dict[str, Any]]) -> Document:
    document = copy.deepcopy(document)
    wire: Any = bson.decode(bson.encode({"u": operation}))["u"]
    if isinstance(wire, list):
        for stage in wire:
            ((name, argument),) = stage.items()
            document = _STAGES[name](document, argument)
        return document
    for path in wire.get("$unset", {}):
        _unset(document, path.split("."))
    for path in sorted(wire.get("$set", {}), key=_lexicographic):
        _set(document, path.split("."), wire["$set"][path])
    return document


def fits(document: Document, condition: Any) -> bool:
    return condition is None or bool(_evaluate(bson.decode(bson.encode({"c": condition}))["c"], {"ROOT": document}))


def there(document: Any, path: str) -> bool:
    """Whether there is a field of that path. A server also looks into the elements of arrays, which no update of the product relies on."""
    for part in path.split("."):
        if isinstance(document, list) and part.isdigit():
            document = document[int(part)] if int(part) < len(document) else _MISSING
        else:
            document = document.get(part, _MISSING) if isinstance(document, dict) else _MISSING
    return document is not _MISSING


def _lexicographic(path: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in path.split(".")]


def _set(holder: Any, path: list[str], value: Any) -> None:
    part, *rest = path
    if isinstance(holder, list) and part.isdigit():
        holder.extend([None] * (int(part) + 1 - len(holder)))
        key: Any = int(part)
    elif isinstance(holder, dict) and part:
        key = part
        if rest:
            holder.setdefault(part, {})
    else:
        raise Refused(f"{part!r} in {holder!r}")
    if rest:
        _set(holder[key], rest, value)
    else:
        holder[key] = value


def _unset(holder: Any, path: list[str]) -> None:
    part, *rest = path
    if isinstance(holder, list) and part.isdigit() and int(part) < len(holder):
        if rest:
            _unset(holder[int(part)], rest)
        else:
            holder[int(part)] = None
    elif isinstance(holder, dict) and part in holder:
        if rest:
            _unset(holder[part], rest)
        else:
            del holder[part]


def _replace_stage(document: Document, expression: Any) -> Document:
    replaced: Document = _evaluate(expression, {"ROOT": document})
    assert isinstance(replaced, dict)
    return replaced


_STAGES: dict[str, Callable[[Document, Any], Document]] = {
    "$replaceWith": _replace_stage,
}


def _evaluate(expression: Any, variables: dict[str, Any]) -> Any:
    if isinstance(expression, str) and expression.startswith("$$"):
        return _MISSING if expression == "$$REMOVE" else _path(expression[2:], variables)
    if isinstance(expression, list):
        return [_present(_evaluate(part, variables)) for part in expression]
    if not isinstance(expression, dict):
        assert not (isinstance(expression, str) and expression.startswith("$"))
        return expression
    if not any(name.startswith("$") for name in expression):
        return _object(expression, variables)
    ((operator, argument),) = expression.items()
    return _operate(operator, argument, variables)


def _path(path: str, variables: dict[str, Any]) -> Any:
    variable, *names = path.split(".")
    value = variables[variable]
    for name in names:
        assert isinstance(value, dict), f"the path {path} leads into {value!r}"
        assert name
        value = value.get(name, _MISSING)
    return value


def _object(fields: Document, variables: dict[str, Any]) -> Document:
    assert not any("." in name or not name for name in fields)
    values = {name: _evaluate(value, variables) for name, value in fields.items()}
    return {name: value for name, value in values.items() if value is not _MISSING}


def _present(value: Any) -> Any:
    return None if value is _MISSING else value


def _operate(operator: str, argument: Any, variables: dict[str, Any]) -> Any:
    if operator in _LAZY:
        return _LAZY[operator](argument, variables)
    parts = argument if isinstance(argument, list) else [argument]
    values = [_evaluate(part, variables) for part in parts]
    try:
        return _EAGER[operator](*values)
    except TypeError:
        raise Refused(f"{operator} of {values!r}") from None


def _let(argument: Any, variables: dict[str, Any]) -> Any:
    bound = {name: _evaluate(value, variables) for name, value in argument["vars"].items()}
    return _evaluate(argument["in"], {**variables, **bound})


def _cond(argument: Any, variables: dict[str, Any]) -> Any:
    condition, then, otherwise = argument
    return _evaluate(then if _evaluate(condition, variables) else otherwise, variables)


def _map(argument: Any, variables: dict[str, Any]) -> Any:
    elements = _evaluate(argument["input"], variables)
    return [_evaluate(argument["in"], {**variables, "this": element}) for element in elements]


def _filter(argument: Any, variables: dict[str, Any]) -> Any:
    elements = _evaluate(argument["input"], variables)
    return [element for element in elements if _evaluate(argument["cond"], {**variables, "this": element})]


def _slice(array: Any, *bounds: int) -> Any:
    if not isinstance(array, list) or bounds[-1] <= 0:
        raise Refused(f"$slice of {array!r} by {bounds}")
    begin, count = bounds if len(bounds) == 2 else (0, bounds[0])
    return array[begin : begin + count]


def _concat(*arrays: Any) -> Any:
    if not all(isinstance(array, list) for array in arrays):
        raise Refused(f"$concatArrays of {arrays!r}")
    return [element for array in arrays for element in array]


def _element(array: Any, index: int) -> Any:
    if not isinstance(array, list):
        raise Refused(f"$arrayElemAt of {array!r}")
    return array[index] if index < len(array) else _MISSING


_LAZY: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "$literal": lambda argument, _: copy.deepcopy(argument),
    "$let": _let,
    "$cond": _cond,
    "$and": lambda argument, variables: all(_evaluate(part, variables) for part in argument),
    "$or": lambda argument, variables: any(_evaluate(part, variables) for part in argument),
    "$map": _map,
    "$filter": _filter,
}
_EAGER: dict[str, Callable[..., Any]] = {
    "$type": lambda value: "object" if isinstance(value, dict) else "missing" if value is _MISSING else "other",
    "$isArray": lambda value: isinstance(value, list),
    "$not": lambda value: not value,
    "$in": lambda value, values: value in values,
    "$objectToArray": lambda value: [{"k": name, "v": inner} for name, inner in value.items()],
    "$arrayToObject": lambda pairs: {pair["k"]: pair["v"] for pair in pairs},
    "$eq": lambda one, other: one == other,
    "$size": len,
    "$max": max,
    "$mergeObjects": lambda *objects: {name: value for each in objects for name, value in each.items()},
    "$range": lambda begin, end: list(range(begin, end)),
    "$slice": _slice,
    "$concatArrays": _concat,
    "$arrayElemAt": _element,
}
