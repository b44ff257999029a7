"""The events of a chaos run and their times: a function of its seed. Pure.

Events begin seconds apart and last longer than that, so they overlap, but those of one subject do not. At any moment at least
one of the three nodes is neither killed, frozen nor drained; the other two may be hit at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random

NODES = ("n1", "n2", "n3")
SETS = ("source", "target")
SERVERS = ("etcd", *SETS)
LINKS = tuple(f"{node}-{server}" for node in NODES for server in SERVERS)


class What(StrEnum):
    KILL = "kill -9"
    FREEZE = "SIGSTOP"
    DRAIN = "drain, stop"
    RESTART = "all members killed"
    STEP_DOWN = "primary steps down"
    KILL_LEADER = "leader killed"
    FREEZE_LEADER = "leader frozen"
    PARTITION = "primary loses the others, not its clients"
    MEMBER_DOWN = "one of three down for long"
    ROLL_BACK = "rollback"
    HOLD = "majority held"
    FULL = "out of space"
    CUT = "connections cut"
    BLOCK = "nothing goes through"
    PAUSE = "changefeed paused"
    MOVE = "table moved"
    RESIGN = "owner resigns"
    SYNC = "bank synchronised"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`at` and `lasts` in seconds. For an event that ends by itself, no other event hits its subject for `lasts`."""

    at: float
    what: What
    subject: str
    lasts: float


@dataclass(frozen=True, slots=True)
class _Sort:
    weight: int
    subjects: tuple[str, ...]
    lasts: tuple[float, float]


_SORTS: Mapping[What, _Sort] = {
    What.KILL: _Sort(5, NODES, (2, 15)),
    What.FREEZE: _Sort(4, NODES, (3, 25)),  # the session lasts 10 s
    What.DRAIN: _Sort(2, NODES, (30, 30)),
    What.RESTART: _Sort(3, SERVERS, (0, 12)),
    What.KILL_LEADER: _Sort(4, SERVERS, (1, 25)),
    What.FREEZE_LEADER: _Sort(
        3, SERVERS, (3, 25)
    ),  # elections begin after 10 s at source and target, after 1 s in etcd
    What.STEP_DOWN: _Sort(3, SETS, (1, 1)),
    What.PARTITION: _Sort(3, SETS, (5, 30)),
    What.MEMBER_DOWN: _Sort(2, SERVERS, (30, 90)),
    What.ROLL_BACK: _Sort(4, SETS, (2, 8)),
    What.HOLD: _Sort(3, SETS, (3, 30)),
    What.FULL: _Sort(2, ("etcd",), (2, 15)),
    What.CUT: _Sort(4, LINKS, (0, 0)),
    What.BLOCK: _Sort(4, LINKS, (3, 30)),
    What.PAUSE: _Sort(2, ("shop",), (2, 15)),
    What.MOVE: _Sort(4, ("shop",), (0, 0)),
    What.RESIGN: _Sort(2, ("owner",), (0, 0)),
}
_BETWEEN = (4.0, 16.0)
_SYNC_EVERY = 60.0
_MOST_NODES_DOWN = 2
_TAKES_NODES_DOWN = (What.KILL, What.FREEZE, What.DRAIN)
_TO_RECOVER_FROM = (*_TAKES_NODES_DOWN, *(what for what, sort in _SORTS.items() if set(sort.subjects) & set(SERVERS)))
_RECOVERY = 15.0
"""No event hits a recovered subject for as long as a node's Spark needs to start, or members to elect."""


def schedule(seed: int, seconds: float) -> list[Event]:
    random = Random(seed)
    events = list(_faults(random, seconds))
    syncs = int(seconds / _SYNC_EVERY)
    events += [Event(at=(n + 0.5) * _SYNC_EVERY, what=What.SYNC, subject="bank", lasts=0) for n in range(syncs)]
    return sorted(events, key=lambda event: event.at)


def _faults(random: Random, seconds: float) -> Iterator[Event]:
    busy: dict[str, float] = {}
    at = random.uniform(*_BETWEEN)
    while at < seconds:
        event = _draw(random, at)
        if _possible(event, busy):
            busy[event.subject] = at + event.lasts + (_RECOVERY if event.what in _TO_RECOVER_FROM else 0)
            yield event
        at += random.uniform(*_BETWEEN)


def _draw(random: Random, at: float) -> Event:
    [what] = random.choices(list(_SORTS), [sort.weight for sort in _SORTS.values()])
    sort = _SORTS[what]
    return Event(at=at, what=what, subject=random.choice(sort.subjects), lasts=random.uniform(*sort.lasts))


def _possible(event: Event, busy: Mapping[str, float]) -> bool:
    if busy.get(event.subject, 0.0) > event.at:
        return False
    down = sum(busy.get(node, 0.0) > event.at for node in NODES)
    return event.what not in _TAKES_NODES_DOWN or down < _MOST_NODES_DOWN
