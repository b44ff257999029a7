"""`MatchExpression`: the part of MongoDB's query language that `ignore_where` supports.

Supported are `$eq $ne $gt $gte $lt $lte $in $nin $exists $regex $options $not` on dotted paths, and `$and $or $nor`. Anything else
is an error when the configuration is read, so that no condition silently matches nothing. Literals are JSON; other types are
written as Extended JSON: `{at: {$lt: {$date: "2026-01-01T00:00:00Z"}}}`.

The result is that of the server's `find`: a path continues in the elements of arrays, and at its end means the array itself too;
numbers compare across their types; `$gt` and the like compare only within one BSON type; null also matches a missing field; `$ne`,
`$nin`, `$nor`, `$not` are true whenever their opposite is false. `$regex` also matches a stored regular expression that is the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from bson import json_util
from bson.code import Code
from bson.errors import BSONError
from bson.int64 import Int64
from bson.regex import Regex
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema

from changefeed.config.options import Mistake, did_you_mean, parsed, shown
from changefeed.config.tables.regular_expression import OPTIONS, RegularExpression, Unsupported
from changefeed.documents.bson_order import MISSING, compare, equality_key, is_nan, regex_parts, same_type
from changefeed.documents.document import Document

_ORDERINGS: dict[str, Callable[[int], bool]] = {
    "$eq": lambda order: order == 0,
    "$gt": lambda order: order > 0,
    "$gte": lambda order: order >= 0,
    "$lt": lambda order: order < 0,
    "$lte": lambda order: order <= 0,
}
_FIELD_OPERATORS = (*_ORDERINGS, "$ne", "$in", "$nin", "$exists", "$regex", "$options", "$not")
_LOGICAL_OPERATORS = ("$and", "$or", "$nor")
_EXTENDED_JSON = {
    "$oid", "$date", "$numberInt", "$numberLong", "$numberDouble", "$numberDecimal", "$binary", "$uuid", "$timestamp",
}  # fmt: skip

Condition: TypeAlias = Callable[[Mapping[str, Any]], bool]
"""Whether a document passes."""


@dataclass(frozen=True, slots=True)
class Values:
    """Of `$eq` and `$in`. A long list costs a value no more than a short one, unless it has documents or arrays."""

    keys: frozenset[Hashable]
    others: tuple[Any, ...]

    @classmethod
    def of(cls, values: Iterable[Any]) -> Values:
        keys, others = set(), []
        for value in values:
            key = equality_key(value)
            if key is None:
                others.append(value)
            else:
                keys.add(key)
        return cls(frozenset(keys), tuple(others))

    def has(self, value: Any) -> bool:
        key = equality_key(value)
        return key in self.keys if key is not None else any(_compares("$eq", value, other) for other in self.others)


def _any_value(path: str, passes: Callable[[Any], bool]) -> Condition:
    """True if any value at the path passes."""
    steps = path.split(".")

    def condition(document: Mapping[str, Any]) -> bool:
        value = document.get(path, MISSING) if len(steps) == 1 else ()
        if not isinstance(value, list | tuple):
            return passes(value)
        return any(map(passes, values_at(document, steps)))

    return condition


@dataclass(frozen=True, slots=True)
class MatchExpression:
    """`query` is what the user wrote. `key_only`: it reads only `_id`, which every event has."""

    query: Document
    accepts: Condition = field(repr=False, compare=False)
    key_only: bool = field(repr=False, compare=False)

    @classmethod
    def parse(cls, value: object) -> MatchExpression:
        if not isinstance(value, Mapping):
            raise Mistake(f"found {shown(value)}; write a match expression such as {{level: debug}}")
        if not value:
            raise Mistake("found {}, which matches every event; list the event type under ignore instead")
        try:
            query = Document.of(_plain(value, ""))
        except (BSONError, OverflowError) as error:
            raise Mistake(f"found a value that BSON does not have: {error}") from None
        names = set[str]()
        return cls(query, _all_of(query.decode(), "", names), names <= {"_id"})

    def __reduce__(self) -> tuple[object, ...]:
        return MatchExpression.parse, (self.query.decode(),)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        options = json_util.RELAXED_JSON_OPTIONS
        return parsed(
            cls, lambda expression: json.loads(json_util.dumps(expression.query.decode(), json_options=options))
        )


def values_at(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """The values at `path` in `value`, or MISSING. For an array at the end of the path: its elements, then the array itself.

    At an array inside the path, the path continues in each element that is a document. A number in the path selects one element.
    """
    if not path:
        if isinstance(value, list | tuple):
            yield from value
        yield value
    elif isinstance(value, Mapping):
        yield from values_at(value.get(path[0], MISSING), path[1:])
    elif isinstance(value, list | tuple):
        yield from _values_in_array(value, path)
    else:
        yield MISSING


def _values_in_array(array: Sequence[Any], path: Sequence[str]) -> Iterator[Any]:
    for number, element in enumerate(array):
        if isinstance(element, Mapping):
            yield from values_at(element, path)
        if path[0] == str(number):
            if len(path) == 1:
                yield element
            elif isinstance(element, Mapping | list | tuple):
                yield from values_at(element, path[1:])


def _matches(expression: RegularExpression, value: Any) -> bool:
    match value:
        case Code():
            return False
        case str():
            return expression.matches(value)
        case Regex():
            return regex_parts(value) == (expression.pattern, expression.options)
        case _:
            return False


def _compares(operator: str, value: Any, operand: Any) -> bool:
    if not same_type(value, operand):
        return False
    if is_nan(value) or is_nan(operand):
        return is_nan(value) and is_nan(operand) and operator in ("$eq", "$gte", "$lte")
    return _ORDERINGS[operator](compare(value, operand))


def _all_of(query: Mapping[str, Any], at: str, names: set[str]) -> Condition:
    """A whole expression: every member must hold. `names` gets the fields that it reads."""
    conditions = list[Condition]()
    for key, value in query.items():
        here = f"{at}.{key}" if at else key
        if key in _LOGICAL_OPERATORS:
            conditions.append(_logical(key, value, here, names))
        elif key.startswith("$"):
            raise _unknown(here, key, _LOGICAL_OPERATORS)
        elif "" in key.split("."):
            raise Mistake(f"at {here!r}: found an empty field name; write a dotted path such as customer.name")
        else:
            names.add(key.partition(".")[0])
            conditions.append(_field(key, value, here))
    return _every(conditions)


def _logical(operator: str, value: Any, at: str, names: set[str]) -> Condition:
    if not isinstance(value, list) or not value or not all(isinstance(part, Mapping) and part for part in value):
        raise Mistake(f"at {at!r}: found {shown(value)}; {operator} takes a list of one or more match expressions")
    parts = [_all_of(part, f"{at}[{number}]", names) for number, part in enumerate(value)]
    if operator == "$and":
        return _every(parts)
    wanted = operator == "$or"
    return lambda document: any(part(document) for part in parts) is wanted


def _every(parts: Sequence[Condition]) -> Condition:
    return parts[0] if len(parts) == 1 else lambda document: all(part(document) for part in parts)


def _opposite(condition: Condition) -> Condition:
    return lambda document: not condition(document)


def _field(path: str, value: Any, at: str) -> Condition:
    if not isinstance(value, Mapping) or not any(key.startswith("$") for key in value):
        return _any_value(path, Values.of([_literal(value, at)]).has)
    conditions = list[Condition]()
    for operator, operand in value.items():
        here = f"{at}.{operator}"
        if operator not in _FIELD_OPERATORS:
            raise _unknown(here, operator, _FIELD_OPERATORS)
        if operator != "$options":
            conditions.append(_condition(path, operator, operand, value, here))
        elif "$regex" not in value:
            raise Mistake(f"at {here!r}: found no $regex beside it; $options belongs to $regex")
    return _every(conditions)


def _condition(path: str, operator: str, operand: Any, beside: Mapping[str, Any], at: str) -> Condition:
    match operator:
        case "$eq" | "$ne":
            equal = _any_value(path, Values.of([_literal(operand, at)]).has)
            return equal if operator == "$eq" else _opposite(equal)
        case "$in" | "$nin":
            if not isinstance(operand, list) or not operand:
                raise Mistake(f"at {at!r}: found {shown(operand)}; {operator} takes a list of one or more values")
            one_of = _any_value(path, Values.of(_literal(operand, at)).has)
            return one_of if operator == "$in" else _opposite(one_of)
        case "$exists":
            if not isinstance(operand, bool):
                raise Mistake(f"at {at!r}: found {shown(operand)}; $exists takes true or false")
            there = _any_value(path, lambda value: value is not MISSING)
            return there if operand else _opposite(there)
        case "$regex":
            return _any_value(path, partial(_matches, _compiled(operand, beside.get("$options", ""), at)))
        case "$not":
            if not isinstance(operand, Mapping) or not operand or not all(key.startswith("$") for key in operand):
                raise Mistake(
                    f"at {at!r}: found {shown(operand)}; $not takes operators, for example {{$not: {{$gt: 5}}}}"
                )
            return _opposite(_field(path, operand, at))
        case _:
            return _any_value(path, partial(_compares, operator, operand=_literal(operand, at)))


def _literal(value: Any, at: str) -> Any:
    """The value itself. An operator inside it is refused, since it would be compared and never evaluated."""
    members = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        if str(key).startswith("$"):
            raise Mistake(
                f"at '{at}.{key}': found an operator inside a value; write the path with dots, "
                "for example {customer.age: {$gt: 5}}"
            )
        _literal(member, f"{at}.{key}")
    return value


def _compiled(pattern: Any, options: Any, at: str) -> RegularExpression:
    if not isinstance(pattern, str):
        raise Mistake(f"at {at!r}: found {shown(pattern)}; $regex takes a text")
    if not isinstance(options, str) or set(options) - set(OPTIONS):
        raise Mistake(f"at {at!r}: found $options {options!r}; allowed are the letters {', '.join(OPTIONS)}")
    try:
        return RegularExpression.parse(pattern, options)
    except Unsupported as error:
        raise Mistake(f"at {at!r}: found {shown(pattern)}, which has {error}") from None


def _plain(value: Any, at: str) -> Any:
    """JSON and Extended JSON as BSON values. Integers of all sizes become `int`, since they compare alike."""
    if isinstance(value, Mapping):
        if _EXTENDED_JSON.intersection(value):
            literal = _extended(value, at)
            return int(literal) if isinstance(literal, Int64) else literal
        return {str(key): _plain(member, f"{at}.{key}" if at else str(key)) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member, f"{at}[{number}]") for number, member in enumerate(value)]
    return value


def _extended(value: Mapping[str, Any], at: str) -> Any:
    try:
        return json_util.object_hook(dict(value), json_util.RELAXED_JSON_OPTIONS)
    except (TypeError, ValueError, KeyError, ArithmeticError, BSONError) as error:
        raise Mistake(f"at {at!r}: found {dict(value)!r}, which is no Extended JSON: {error}") from None


def _unknown(at: str, operator: str, allowed: Sequence[str]) -> Mistake:
    return Mistake(
        f"at {at!r}: found unknown operator {operator!r}; allowed are {', '.join(allowed)}{did_you_mean(operator, allowed)}"
    )
