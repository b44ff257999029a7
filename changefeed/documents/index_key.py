"""`key_as_written`: the key of an index as a user writes it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def key_as_written(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Servers store a text index's key as `{_fts: "text", _ftsx: 1}` and its fields in `weights`. createIndexes expects the fields."""
    key: dict[str, Any] = {}
    for field, way in spec["key"].items():
        if field == "_fts":
            key |= dict.fromkeys(sorted(spec.get("weights", {})), "text")
        elif field != "_ftsx":
            key[field] = way
    return key
