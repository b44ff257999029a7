"""`differences`: how a configuration that somebody keeps elsewhere differs from the one that is in effect. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from changefeed.config.configuration import Configuration

_ONLY_AT_CREATION = frozenset({"start"})
_ADDRESSES = ("source", "sink")


def differences(kept: Configuration, present: Configuration) -> list[str]:
    """The names of options. Of addresses, credentials and options count too. A target that only the present one has was set by a cut-over."""
    found = set(_paths(kept.public(), present.public(), ""))
    found |= {name for name in _ADDRESSES if getattr(kept, name) != getattr(present, name)}
    cut_over = {"target"} if kept.target is None else set()
    return sorted(found - _ONLY_AT_CREATION - cut_over)


def _paths(one: dict[str, Any], other: dict[str, Any], prefix: str) -> Iterator[str]:
    for name in sorted(one.keys() | other.keys()):
        left, right = one.get(name), other.get(name)
        if isinstance(left, dict) and isinstance(right, dict):
            yield from _paths(left, right, f"{prefix}{name}.")
        elif left != right:
            yield f"{prefix}{name}"
