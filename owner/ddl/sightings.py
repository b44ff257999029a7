"""`Sightings`: what the source had committed at which moment, as the DDL watch showed it. Pure.

A checkpoint says how far a changefeed is in the source's time. That time does not move while there are no writes, and jumps with the
periodic no-op, so its difference to a clock does not say what is missing. Therefore each answer of the source is remembered with the
moment of the request, on one clock, the owner's:

    asked at       12.0     12.1     12.2     12.3
    end            90.1     90.1     90.7     91.4
    checkpoint 90.1 at 12.3     everything that was committed by 12.1 is downstream: 0.2 s behind
    checkpoint 91.4 at 12.5     everything that the source was last seen to have is downstream: nothing is left

When there are too many, a sighting is forgotten if its neighbours are nearer to each other than a 32nd of their age: a lag of an hour is
known to two minutes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from changefeed.position import Position

_MOST = 600
_FINENESS = 32
"""A week of ten sightings a second is reduced to 500."""


@dataclass(frozen=True, slots=True)
class Sighting:
    end: Position
    """Everything that the source had committed is below this position."""
    at: datetime
    """The moment of the request: the source answered then or later."""


@dataclass(frozen=True, slots=True)
class Sightings:
    """In ascending order of `end` and `at`."""

    seen: tuple[Sighting, ...] = ()

    def and_then(self, newest: Sighting) -> Sightings:
        before = self.seen
        if before and newest.end <= before[-1].end:
            return Sightings((*before[:-1], Sighting(before[-1].end, newest.at)))
        kept = before if len(before) < _MOST else _thinned(before, newest.at)
        return Sightings((*kept, newest))

    @property
    def latest(self) -> Sighting | None:
        return self.seen[-1] if self.seen else None

    def reached(self, checkpoint: Position) -> Sighting | None:
        """The last sighting whose end the checkpoint has reached."""
        count = bisect_right(self.seen, checkpoint, key=lambda sighting: sighting.end)
        return self.seen[count - 1] if count else None


def _thinned(seen: Sequence[Sighting], now: datetime) -> tuple[Sighting, ...]:
    kept: list[Sighting] = []
    for sighting in reversed(seen):
        if not kept or kept[-1].at - sighting.at >= (now - sighting.at) / _FINENESS:
            kept.append(sighting)
    return tuple(reversed(kept[: _MOST - 1]))
