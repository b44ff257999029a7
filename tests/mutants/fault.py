"""`Fault`: a mistake that an engineer could make, as a text of the product and its replacement. `Seeds`: simulations that look for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds:
    """Simulated clusters, from seed `first` on."""

    count: int
    first: int = 0
    options: tuple[str, ...] = ()
    """`sharded`, `slow`, `refusing`, `kept`, as `tests.simulation.run` has them."""

    def __str__(self) -> str:
        return " ".join([f"seeds {self.first}-{self.first + self.count - 1}", *self.options])


Test: TypeAlias = "str | Seeds"
"""A path of pytest below `tests/`, perhaps with `::` and a test; or seeds."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`text` stands once in the product, wherever that is. The replaced module can still be imported and run: a fault is seen by what it does."""

    name: str
    """What is wrong, as a sentence."""
    text: str
    replacement: str
    tests: tuple[Test, ...] = field(default=(), kw_only=True)
    """What looks for it, from cheap to dear. Empty: the unit tests in the folder nearest to the module."""
    equivalent: str = field(default="", kw_only=True)
    """Why nothing can see it."""
