"""`joined`: stages of a pipeline that set top-level fields to constants, one after the other, as one stage. Pure.

A server takes no more than a thousand stages, and a row that waits for a unique value gathers all that happens to it meanwhile.

    {n: 1}  {n: 2, m: 3}  [a path of an array]  {n: 4}    becomes    {n: 2, m: 3}  [a path of an array]  {n: 4}
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Stage = dict[str, Any]
_ROOT = "$$ROOT"


def joined(stages: Iterable[Stage]) -> list[Stage]:
    """The same document comes of them: a field keeps its place when it is set again, and a new one is appended."""
    result: list[Stage] = []
    open_fields: dict[str, Any] | None = None
    for stage in stages:
        fields = _constants(stage)
        if fields is None or open_fields is None:
            result.append(stage)
            open_fields = fields
        else:
            open_fields = {**open_fields, **fields}
            result[-1] = {"$replaceWith": {"$mergeObjects": [_ROOT, {"$literal": open_fields}]}}
    return result


def _constants(stage: Stage) -> dict[str, Any] | None:
    """What the stage sets, first to last; None if it does anything else or looks at the document."""
    expression = stage.get("$replaceWith")
    fields: list[tuple[str, Any]] = []
    while expression != _ROOT:
        setting = expression.get("$setField") if isinstance(expression, dict) else None
        if setting is None or not isinstance(setting["value"], dict) or "$literal" not in setting["value"]:
            return None
        fields.append((setting["field"]["$literal"], setting["value"]["$literal"]))
        expression = setting["input"]
    return dict(reversed(fields))
