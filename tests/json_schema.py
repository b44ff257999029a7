"""`violations`: a value compared with a JSON schema. Knows the keywords that our schemas use, and refuses any other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
    "null": type(None),
}
_ABOUT = {"$schema", "$defs", "title"}


def violations(value: Any, schema: Mapping[str, Any], whole: Mapping[str, Any], at: str = "") -> Iterator[str]:
    for keyword, rule in schema.items():
        if keyword in _ABOUT:
            continue
        yield from _violations(keyword, rule, value, schema, whole, at)


def _violations(  # noqa: C901, PLR0912 - one case for each keyword
    keyword: str, rule: Any, value: Any, schema: Mapping[str, Any], whole: Mapping[str, Any], at: str
) -> Iterator[str]:
    match keyword:
        case "$ref":
            yield from violations(value, whole["$defs"][rule.rpartition("/")[2]], whole, at)
        case "oneOf":
            tried = [list(violations(value, each, whole, at)) for each in rule]
            if sum(not found for found in tried) != 1:
                yield f"{at}: fits {sum(not found for found in tried)} of {len(rule)} alternatives: {tried}"
        case "type":
            kinds = [rule] if isinstance(rule, str) else rule
            if not any(
                isinstance(value, _TYPES[kind]) and (kind == "boolean") == isinstance(value, bool) for kind in kinds
            ):
                yield f"{at}: {value!r} is not {rule}"
        case "const":
            if value != rule:
                yield f"{at}: {value!r} is not {rule!r}"
        case "enum":
            if value not in rule:
                yield f"{at}: {value!r} is none of {rule}"
        case "pattern":
            if isinstance(value, str) and not re.search(rule, value):
                yield f"{at}: {value!r} does not match {rule}"
        case "required":
            yield from (f"{at}: {name} is missing" for name in rule if isinstance(value, dict) and name not in value)
        case "properties":
            for name in rule.keys() & (value if isinstance(value, dict) else {}):
                yield from violations(value[name], rule[name], whole, f"{at}.{name}")
        case "additionalProperties":
            for name in (value if isinstance(value, dict) else {}).keys() - schema.get("properties", {}).keys():
                found = [f"{at}: {name} is not allowed"] if rule is False else violations(value[name], rule, whole, at)
                yield from found
        case "items":
            for number, each in enumerate(value if isinstance(value, list) else []):
                yield from violations(each, rule, whole, f"{at}[{number}]")
        case _:
            raise NotImplementedError(keyword)
