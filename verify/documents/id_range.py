"""Ranges of `_id`, by which a table is read in parallel. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class IdRange:
    """`[low, high)` in the order of the index on `_id`, each bound a raw `{_id: ...}`; None is an open end."""

    low: bytes | None = None
    high: bytes | None = None


EVERYTHING = IdRange()


def ranges_between(splits: Sequence[bytes]) -> tuple[IdRange, ...]:
    """With open ends: what stands only at the target, below or above all that the source has, is in them too."""
    bounds = [None, *splits, None]
    return tuple(IdRange(low, high) for low, high in pairwise(bounds))
