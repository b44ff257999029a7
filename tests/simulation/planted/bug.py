"""`Bug`: a plausible bug as a context that replaces a part of the product."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

Plant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Bug:
    plant: Plant
    found_within: int
    """The number of seeds, from 0 on, within which it is found."""
    sharded: bool = False
    """Whether the source of these seeds is a sharded cluster."""
    kept: bool = False
    """Whether their copies may remove nothing at the target."""
    slow: bool = False
    """Whether their target is slow with one table."""
    refusing: bool = False
    """Whether it refuses many changes of rows that it has."""
    sink: str = "mongodb"
    """What their sink is."""
