"""Which windows are handed to a task that stays in a Spark worker, and which of these tasks are to leave. Pure.

A job for each window costs 30 to 80 ms of CPU and as much lag. So a lane that follows has a task that stays: its driver hands it one window after another.
It holds one of Spark's slots meanwhile, also between windows, so nothing else may wait for a slot because of it. In order of precedence:

- NobodyStaysInACrowd: lanes that follow and all other tasks together must fit into the slots; otherwise every task that stays is asked to leave
- NobodyWaitsForTheIdle: where they fit only without the tasks of lanes that follow no more, those are asked to leave
- OneContextOneStay: a DDL, an assignment, another run or a lost attempt ends it, and the next window begins a new one
- NoStayIsLong: `longest` bounds what a worker may gather, and how long one lane has the same slot
- NoStayIsIdle: a lane that has no windows gives its slot back after `idle`
- EveryWindowBeginsOne: where there is room, also the first after a rest. A stay that is handed one window costs what a job does, and the next may be the first of many
- NoStayWithoutAWay: a task that could not reach its driver is not sent again for a while

Who is asked to leave does so at once when it is idle, after its window when it is at work. A worked example, two slots, one changefeed f:

    0.0    window of f        begin
    0.1    window of f        hand over
    5.0    copy, one task     stays           2 of 2 slots
    6.0    copy, second task  leave           3 of 2
    6.1    window of f        job
    9.0    the copies end; window of f        begin
    21.1   no window since 9.1                leave
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from changefeed.records import ChangefeedId


@dataclass(frozen=True, slots=True, kw_only=True)
class StayLimits:
    """In seconds."""

    follows: float = 2.0
    """After its last window a lane counts as one that follows, and wants a slot, for so long."""
    idle: float = 12.0
    """More than the ten seconds after which a source at rest says something: a job for each of these would be all that costs anything then."""
    longest: float = 60.0
    without: float = 60.0
    """Until it is tried again after a task could not reach its driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staying:
    """A task that stays, as its driver knows it. It is known until it is asked to leave, or gone."""

    context: str
    attempt: str
    begun_at: float
    idle_since: float | None
    """None: it is at work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """All that competes for the slots of one driver. Times are monotonic seconds."""

    slots: int
    following: Mapping[ChangefeedId, float] = field(default_factory=dict)
    """Until when each changefeed's default lane counts as one that follows."""
    staying: Mapping[ChangefeedId, Staying] = field(default_factory=dict)
    others: int = 0
    """Tasks of all other jobs, at work or waiting for a slot."""
    no_way_until: float = float("-inf")

    def counting(self, window: NextWindow | None) -> Room:
        """With the lane of a window that is about to run."""
        if window is None:
            return self
        return replace(self, following={**self.following, window.changefeed: float("inf")})

    def follow(self, now: float) -> frozenset[ChangefeedId]:
        return frozenset(id for id, until in self.following.items() if now < until)

    def crowded(self, now: float) -> bool:
        return len(self.follow(now)) + self.others > self.slots

    def full(self, now: float) -> bool:
        return len(self.follow(now) | self.staying.keys()) + self.others > self.slots


@dataclass(frozen=True, slots=True, kw_only=True)
class NextWindow:
    """A narrow window of a default lane, which is to run now."""

    changefeed: ChangefeedId
    context: str
    attempt: str


class Way(StrEnum):
    JOB = "job"
    BEGIN = "begin"
    HAND_OVER = "hand_over"


def way_of(window: NextWindow, room: Room, now: float) -> Way:
    """Who is to leave has been asked before: what is still known may stay."""
    if window.changefeed in room.staying:
        return Way.HAND_OVER
    return Way.JOB if room.counting(window).crowded(now) or now < room.no_way_until else Way.BEGIN


def leaving(room: Room, limits: StayLimits, now: float, window: NextWindow | None = None) -> tuple[ChangefeedId, ...]:
    """Who is to be asked to leave now; `window` is one that is about to run."""
    room = room.counting(window)
    if room.crowded(now):
        return tuple(room.staying)
    idle = room.staying.keys() - room.follow(now) if room.full(now) else frozenset()
    return tuple(id for id, known in room.staying.items() if id in idle or _over(id, known, limits, now, window))


def _over(id: ChangefeedId, known: Staying, limits: StayLimits, now: float, window: NextWindow | None) -> bool:
    if now >= known.begun_at + limits.longest:
        return True
    if window is not None and window.changefeed == id:
        return (known.context, known.attempt) != (window.context, window.attempt)
    return known.idle_since is not None and now >= known.idle_since + limits.idle
