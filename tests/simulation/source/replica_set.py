"""`ReplicaSet`: an oplog that several members show as far as each knows a majority to have it, and elections.

A majority has the entries some moments after they were written, and each member learns of it a while later. A new primary knows of fewer
commits than its predecessor has shown, until a majority has its own first entry. Entries that no majority had may be lost with the old
primary.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pymongo.errors import NetworkTimeout

from changefeed.cluster_time import ClusterTime
from tests.simulation.clockwork.machine import Machine
from tests.simulation.clockwork.substitutes import Waiters
from tests.simulation.source import oplog
from tests.simulation.source.oplog import Entry

FIRST_SECOND = 1_795_000_000
NOTE_EVERY = 10.0
"""Seconds between two checks of a primary whether it has been idle."""
_CLIENT_WAITS = 30.0
_MEMBERS = 3


@dataclass
class Member:
    """`visible`: the number of entries in its committed snapshot."""

    name: str
    visible: int = 0


class ReplicaSet:
    def __init__(self, machine: Machine, *, version: tuple[int, int], note_every: float = NOTE_EVERY) -> None:
        self.machine = machine
        self.version = version
        self._note_every = note_every
        self.oplog: list[Entry] = []
        """All entries that were written and not rolled back."""
        self.first = 0
        """The entries before it are truncated."""
        self.members = [Member(f"m{number}") for number in range(_MEMBERS)]
        self.primary = self.members[0]
        self.commits: list[tuple[float, int]] = []
        """How much of the oplog had become visible at which moment."""
        self._told = 0
        self._has = 0
        """The number of entries that a majority has. It does not grow while the majority is held."""
        self._still_until = 0.0
        self._deaf = False
        self.taken_back = 0
        """How many entries were lost in elections."""
        self.shown: dict[bytes, dict[Any, bool]] = {}
        """By query: which events or entries it shows."""
        self.changed = Waiters()
        self.election = 1
        self.slow_reads = 0.0
        """Seconds that a read of documents may take."""
        self.slow_scan = 0.0
        """Seconds that a stream takes for each entry of the oplog."""
        self.from_secondaries = False
        """Whether each client reads from a secondary of its choice."""
        self.asked: Callable[[ClusterTime], None] = lambda start_ts: None
        """Called before each read of a range of the oplog."""
        self._last = ClusterTime(FIRST_SECOND, 0)

    def begin(self) -> None:
        self.note("initiating set")
        self._write_periodic_note()

    def take_time(self) -> None:
        if self.slow_reads and self.machine.random.random() < 0.5:
            self.machine.count("fault: slow reads of a table")
            self.machine.sleep(self.machine.random.random() * self.slow_reads)

    # time

    @property
    def newest(self) -> ClusterTime:
        return self.oplog[-1].ts

    @property
    def visible(self) -> int:
        """The number of visible entries of the oplog, at the primary."""
        return self.primary.visible

    def committed(self, member: Member | None = None) -> ClusterTime:
        """The committed time that a member knows. It may lie between two entries, if no further entry can get an earlier time."""
        visible = (member or self.primary).visible
        if not visible:
            return ClusterTime(FIRST_SECOND, 0)
        at = self.oplog[visible - 1].ts
        later = self.oplog[visible].ts if visible < len(self.oplog) else at
        between = ClusterTime(later.seconds, later.increment - 1) if later.increment > 1 else at
        return between if between > at and visible % 3 == 0 else at

    @property
    def clock(self) -> ClusterTime:
        """The newest time that any member knows of."""
        return self._last

    def tick(self) -> ClusterTime:
        second = FIRST_SECOND + int(self.machine.now)
        later = ClusterTime(second, 1)
        self._last = max(later, self._last.next())
        return self._last

    def visible_at(self, seconds: float) -> int:
        """How many entries the primary showed at that moment. The member that answers after an election may know less."""
        known = bisect_left(self.commits, seconds, key=lambda commit: commit[0])
        return min(upto for _, upto in self.commits[known - 1 :]) if known else 0

    def _commit_later(self, upto: int) -> None:
        def commit() -> None:
            self._told = max(self._told, min(upto, len(self.oplog)))
            self._show()

        self.machine.after(self.machine.random.choice((0.0005, 0.002, 0.02)), commit)

    def hold_majority(self, until: float) -> None:
        """Until then the majority gets nothing new."""
        self._still_until = until
        if until > self.machine.now:
            self.machine.after(until - self.machine.now, self._show)
        else:
            self._show()

    def wait_for_majority(self) -> None:
        """Waits until a majority has all that is written so far. The client times out after `_CLIENT_WAITS` seconds."""
        written, deadline = len(self.oplog), self.machine.now + _CLIENT_WAITS
        while self.visible < written:
            if self.machine.now >= deadline:
                raise NetworkTimeout("timed out")
            self.changed.wait(deadline)

    def _show(self) -> None:
        if self.machine.now < self._still_until:
            return
        self._has = max(self._has, self._told)
        self._primary_shows(max(self.visible, self._has))
        self.changed.wake_all()

    def _primary_shows(self, upto: int) -> None:
        if self.primary.visible < upto:
            for member in self.members:
                if member is not self.primary:
                    self.machine.after(
                        self.machine.random.choice((0.0, 0.01, 0.1, 1.0)), partial(self._tell, member, upto)
                    )
        self.primary.visible = upto
        self.commits.append((self.machine.now, upto))

    def hold_secondaries(self, *, held: bool) -> None:
        """While held, the secondaries learn of no commits."""
        self._deaf = held
        for member in self.members:
            self._tell(member, self.primary.visible)

    def _tell(self, member: Member, upto: int) -> None:
        if self._deaf and member is not self.primary:
            return
        member.visible = max(member.visible, upto)
        self.changed.wake_all()

    def elect(self, *, lasting: bool = False) -> None:
        """The new primary may know of fewer commits than the old one. Unless `lasting`, it may lack what no majority has."""
        self.election += 1
        if not lasting:
            self._take_back()
        others = [member for member in self.members if member is not self.primary]
        self.primary = self.machine.random.choice(others)
        self.primary.visible = max(1, self.primary.visible - self.machine.random.choice((0, 1, 3)))
        self._primary_shows(self.primary.visible)
        self.note("new primary")
        self.hold_majority(self.machine.now + self.machine.random.choice((0.0, 0.05, 1.0)))

    def _take_back(self) -> None:
        """Loses what no majority has, or a part of it."""
        raise NotImplementedError

    # what is forgotten

    @property
    def oldest(self) -> ClusterTime:
        return self.oplog[self.first].ts

    def forget(self) -> None:
        """Truncates everything but the newest entry."""
        self.first = len(self.oplog) - 1

    def forget_before(self, ts: ClusterTime) -> None:
        """Truncates entries before a time, but none that no majority has."""
        self.first = max(self.first, min(self.index_of(ts), self.visible - 1))

    def forget_what_is_not_needed(self, needed: ClusterTime) -> None:
        """Except the last such entry: it proves that there is no gap."""
        self.forget_before(self.oplog[max(0, self.index_of(needed) - 1)].ts)

    def has_lost(self, ts: ClusterTime) -> bool:
        return bool(self.first) and self.oldest > ts

    def one_oplog(self) -> ReplicaSet:
        return self

    def asks_nobody(self) -> None:
        self.asked = lambda start_ts: None

    def begin_of_transactions(self, ts: ClusterTime) -> ClusterTime:
        """The time of the first entry of all transactions that end at that time or later."""
        begin = ts
        for each in reversed(self.oplog):
            if each.ts < begin:
                break
            previous = each.document.get("prevOpTime") if "applyOps" in each.document["o"] else None
            if previous is not None and previous["ts"].time and "multiOpType" not in each.document:
                begin = min(begin, ClusterTime.from_bson(previous["ts"]))
        return begin

    def index_of(self, ts: ClusterTime) -> int:
        """The index of the first entry at or after a time."""
        return bisect_left(self.oplog, ts, key=lambda each: each.ts)

    def note(self, message: str = "a note") -> None:
        self.oplog.append(oplog.note(self.tick(), self.election, message))
        self._commit_later(len(self.oplog))

    def _write_periodic_note(self) -> None:
        """Writes a no-op, like every primary that has been idle since its last check."""
        if FIRST_SECOND + self.machine.now - self.newest.seconds >= self._note_every:
            self.note("periodic noop")
        self.machine.after(self._note_every, self._write_periodic_note)
