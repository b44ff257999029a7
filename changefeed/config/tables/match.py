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
from typing import Any

from bson import json_util
from bson.code import Code
from bson.errors import BSONError
from bson.int64 import Int64
from bson.regex import Regex
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from changefeed.config.options import Mistake, did_you_mean, shown
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


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Node, ...]

    def accepts(self, document: Mapping[str, Any]) -> bool:
        return all(part.accepts(document) for part in self.parts)

    def paths(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.paths()


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Node, ...]

    def accepts(self, document: Mapping[str, Any]) -> bool:
        return any(part.accepts(document) for part in self.parts)

    def paths(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.paths()


@dataclass(frozen=True, slots=True)
class Not:
    part: Node

    def accepts(self, document: Mapping[str, Any]) -> bool:
        return not self.part.accepts(document)

    def paths(self) -> Iterator[str]:
        yield from self.part.paths()


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


@dataclass(frozen=True, slots=True)
class Field:
    """True if any value at the path passes."""

    path: str
    operator: str
    operand: Any

    def accepts(self, document: Mapping[str, Any]) -> bool:
        if "." not in self.path:
            value = document.get(self.path, MISSING)
            if not isinstance(value, list | tuple):
                return self._passes(value)
        return any(self._passes(value) for value in values_at(document, self.path.split(".")))

    def _passes(self, value: Any) -> bool:
        match self.operator:
            case "$exists":
                return value is not MISSING
            case "$regex":
                return _matches(self.operand, value)
            case "$eq" | "$in":
                return bool(self.operand.has(value))
            case ordering:
                return _compares(ordering, value, self.operand)

    def paths(self) -> Iterator[str]:
        yield self.path


Node = And | Or | Not | Field


@dataclass(frozen=True, slots=True)
class MatchExpression:
    """`query` is what the user wrote; `root` is its parsed form."""

    query: Document
    root: Node = field(repr=False, compare=False)

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
        return cls(query, _all_of(query.decode(), ""))

    def accepts(self, document: Mapping[str, Any]) -> bool:
        return self.root.accepts(document)

    @property
    def key_only(self) -> bool:
        """Whether it reads only `_id`, which every event has."""
        return all(path.partition(".")[0] == "_id" for path in self.root.paths())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: object) -> MatchExpression:
            return value if isinstance(value, MatchExpression) else cls.parse(value)

        def serialize(value: MatchExpression) -> object:
            return json.loads(json_util.dumps(value.query.decode(), json_options=json_util.RELAXED_JSON_OPTIONS))

        return core_schema.no_info_plain_validator_function(
            validate, serialization=core_schema.plain_serializer_function_ser_schema(serialize)
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


def _all_of(query: Mapping[str, Any], at: str) -> Node:
    """A whole expression: every member must hold."""
    parts = []
    for key, value in query.items():
        here = f"{at}.{key}" if at else key
        if key in _LOGICAL_OPERATORS:
            parts.append(_logical(key, value, here))
        elif key.startswith("$"):
            raise _unknown(here, key, _LOGICAL_OPERATORS)
        elif "" in key.split("."):
            raise Mistake(f"at {here!r}: found an empty field name; write a dotted path such as customer.name")
        else:
            parts.append(_field(key, value, here))
    return And(tuple(parts))


def _logical(operator: str, value: Any, at: str) -> Node:
    if not isinstance(value, list) or not value or not all(isinstance(part, Mapping) and part for part in value):
        raise Mistake(f"at {at!r}: found {shown(value)}; {operator} takes a list of one or more match expressions")
    parts = tuple(_all_of(part, f"{at}[{number}]") for number, part in enumerate(value))
    match operator:
        case "$and":
            return And(parts)
        case "$or":
            return Or(parts)
        case _:
            return Not(Or(parts))


def _field(path: str, value: Any, at: str) -> Node:
    if not isinstance(value, Mapping) or not any(key.startswith("$") for key in value):
        return Field(path, "$eq", Values.of([_literal(value, at)]))
    parts = []
    for operator, operand in value.items():
        here = f"{at}.{operator}"
        if operator not in _FIELD_OPERATORS:
            raise _unknown(here, operator, _FIELD_OPERATORS)
        if operator == "$options":
            if "$regex" not in value:
                raise Mistake(f"at {here!r}: found no $regex beside it; $options belongs to $regex")
            continue
        parts.append(_condition(path, operator, operand, value, here))
    return And(tuple(parts))


def _condition(path: str, operator: str, operand: Any, beside: Mapping[str, Any], at: str) -> Node:
    match operator:
        case "$eq" | "$ne":
            equal = Field(path, "$eq", Values.of([_literal(operand, at)]))
            return equal if operator == "$eq" else Not(equal)
        case "$in" | "$nin":
            if not isinstance(operand, list) or not operand:
                raise Mistake(f"at {at!r}: found {shown(operand)}; {operator} takes a list of one or more values")
            condition = Field(path, "$in", Values.of(_literal(operand, at)))
            return condition if operator == "$in" else Not(condition)
        case "$exists":
            if not isinstance(operand, bool):
                raise Mistake(f"at {at!r}: found {shown(operand)}; $exists takes true or false")
            return Field(path, "$exists", True) if operand else Not(Field(path, "$exists", True))
        case "$regex":
            return Field(path, "$regex", _compiled(operand, beside.get("$options", ""), at))
        case "$not":
            if not isinstance(operand, Mapping) or not operand or not all(key.startswith("$") for key in operand):
                raise Mistake(
                    f"at {at!r}: found {shown(operand)}; $not takes operators, for example {{$not: {{$gt: 5}}}}"
                )
            return Not(_field(path, operand, at))
        case _:
            return Field(path, operator, _literal(operand, at))


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
