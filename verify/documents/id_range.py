"""`IdRange`: a range of `_id`; a table is read in parallel by ranges. Pure."""

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
    """Ranges with open ends: they include documents of the target below or above all keys of the source."""
    bounds = [None, *splits, None]
    return tuple(IdRange(low, high) for low, high in pairwise(bounds))
