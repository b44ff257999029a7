"""`describe`: the differences between two versions of a document, as text. Pure.

qty is 3 at the source, 4 at the target
address.city is missing at the target
price is {"$numberInt": "1"} at the source, {"$numberDouble": "1.0"} at the target
the fields are in another order
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import bson

from verify.documents.raw_document import OPTIONS, value_text

_MOST = 5
_LONGEST = 60


def describe(source: bytes, target: bytes) -> tuple[str, ...]:
    """The first few differences. Documents that decode to the same value differ in their bytes only, for example by a repeated field."""
    left, right = bson.decode(source, OPTIONS), bson.decode(target, OPTIONS)
    found = tuple(islice(_differences("", left, right), _MOST))
    return found or ("the documents differ in their bytes only",)


def _differences(path: str, source: Any, target: Any) -> Iterator[str]:
    if isinstance(source, Mapping) and isinstance(target, Mapping):
        yield from _of_fields(path, source, target)
    elif isinstance(source, list) and isinstance(target, list):
        yield from _of_lists(path, source, target)
    elif (left := value_text(source)) != (right := value_text(target)):
        plain = value_text(source, relaxed=True), value_text(target, relaxed=True)
        left, right = plain if plain[0] != plain[1] else (left, right)
        yield f"{path} is {_short(left)} at the source, {_short(right)} at the target"


def _of_fields(path: str, source: Mapping[str, Any], target: Mapping[str, Any]) -> Iterator[str]:
    for name in source:
        if name not in target:
            yield f"{_join(path, name)} is missing at the target"
    for name in target:
        if name not in source:
            yield f"{_join(path, name)} is at the target only"
    common = [name for name in source if name in target]
    for name in common:
        yield from _differences(_join(path, name), source[name], target[name])
    if common != [name for name in target if name in source]:
        yield f"the fields{f' of {path}' if path else ''} are in another order"


def _of_lists(path: str, source: list[Any], target: list[Any]) -> Iterator[str]:
    if len(source) != len(target):
        yield f"{path} has {len(source)} elements at the source, {len(target)} at the target"
    for number, (left, right) in enumerate(zip(source, target, strict=False)):
        yield from _differences(_join(path, str(number)), left, right)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
