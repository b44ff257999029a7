"""`way_of`, `leaving`: which windows run in a task that stays in a Spark worker, and which staying tasks have to leave. Pure.

A job for each window costs 30 to 80 ms of CPU and as much lag. So a lane that follows has a staying task, or *stay*: its driver hands it
one window after another. A stay occupies one of Spark's slots, also between windows, so no other task may wait for a slot because of it.
Policies, in order of precedence:

- NoStayWithoutFreeSlots: lanes that follow and all other tasks together must fit into the slots; otherwise all stays are asked to leave
- NoTaskWaitsForAnIdleStay: if they fit only without the stays of lanes that no longer follow, those stays are asked to leave
- OneAttemptOneStay: another run or a lost attempt ends the stay, and the next window begins a new one
- ContextsAreHandedOver: a DDL, an assignment or a new configuration makes another context, which a window brings along. It leaves out its base, so a
  context over another base ends the stay
- NoStayIsLong: `longest` limits what accumulates in a worker, and how long one lane has the same slot
- NoStayIsIdle: a lane that has no windows gives its slot back after `idle`
- EveryWindowBeginsAStay: if there is room, also the first window after a pause. A stay with a single window costs as much as a job, and
  more windows may follow
- NoStayWithoutConnection: after a task could not reach its driver, no stay begins for `without`

An idle stay leaves at once when asked, a running one after its window. A worked example, two slots, one changefeed f:

    0.0    window of f        begin
    0.1    window of f        hand over
    5.0    copy, one task     nothing         2 of 2 slots
    6.0    copy, second task  leave           3 of 2 slots
    6.1    window of f        job
    9.0    the copies end; window of f        begin
    21.1   no window since 9.1                leave
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from changefeed.records.requests import ChangefeedId


@dataclass(frozen=True, slots=True, kw_only=True)
class StayLimits:
    """In seconds."""

    follows: float = 2.0
    """How long a lane counts as one that follows, and claims a slot, after its last window."""
    idle: float = 12.0
    """More than ten seconds, the interval at which an idle source writes a no-op. Otherwise each no-op would cost a job."""
    longest: float = 60.0
    without: float = 60.0
    """How long no stay begins after a task could not reach its driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staying:
    """A staying task, as its driver knows it: until the task is asked to leave or has ended."""

    base: str
    run: int
    attempt: str
    begun_at: float
    idle_since: float | None
    """None: a window is running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Everything that competes for the slots of one driver. Times are monotonic seconds."""

    slots: int
    following: Mapping[ChangefeedId, float] = field(default_factory=dict)
    """Until when each changefeed's default lane counts as one that follows."""
    staying: Mapping[ChangefeedId, Staying] = field(default_factory=dict)
    others: int = 0
    """Tasks of all other jobs, running or waiting for a slot."""
    no_way_until: float = float("-inf")

    def counting(self, window: NextWindow | None) -> Room:
        """Adds the lane of a window that is about to run."""
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
    """A narrow window of a default lane that is about to run."""

    changefeed: ChangefeedId
    base: str
    run: int
    attempt: str


class Way(StrEnum):
    JOB = "job"
    BEGIN = "begin"
    HAND_OVER = "hand_over"


def way_of(window: NextWindow, room: Room, now: float) -> Way:
    """Called after the stays in `leaving` were asked to leave: the remaining ones may go on."""
    if window.changefeed in room.staying:
        return Way.HAND_OVER
    return Way.JOB if room.counting(window).crowded(now) or now < room.no_way_until else Way.BEGIN


def leaving(room: Room, limits: StayLimits, now: float, window: NextWindow | None = None) -> tuple[ChangefeedId, ...]:
    """The stays that must be asked to leave now. `window`: a window that is about to run."""
    room = room.counting(window)
    if room.crowded(now):
        return tuple(room.staying)
    idle = room.staying.keys() - room.follow(now) if room.full(now) else frozenset()
    return tuple(id for id, known in room.staying.items() if id in idle or _over(id, known, limits, now, window))


def _over(id: ChangefeedId, known: Staying, limits: StayLimits, now: float, window: NextWindow | None) -> bool:
    if now >= known.begun_at + limits.longest:
        return True
    if window is not None and window.changefeed == id:
        return (known.base, known.run, known.attempt) != (window.base, window.run, window.attempt)
    return known.idle_since is not None and now >= known.idle_since + limits.idle
