"""`EarlyEnd`: where a task stops before the end of its window, because it holds enough. Pure.

The place is between two cluster times, so no transaction is cut. Everything before it was shown, nothing after it was. A worked example, three
events at most, a table whose window has to reach 104:

    events     100.1 a    100.2 b c    103.1 d    104.1 e    104.2 f
    taken      a b c, then d: 103.1 is before 104. The end is 104.1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from source.raw.row_header import Header


@dataclass(frozen=True, slots=True, kw_only=True)
class Enough:
    """How much a window, or a slice of one, holds at most; the last transaction may exceed it."""

    bytes: int
    events: int

    def shared(self, slices: int) -> Enough:
        return Enough(bytes=max(1, self.bytes // slices), events=max(1, self.events // slices))


UNBOUNDED = Enough(bytes=2**63, events=2**63)


class EarlyEnd:
    def __init__(self, enough: Enough, least: Position, overdue: Callable[[], bool] = lambda: False) -> None:
        """`least`: no end before it. `overdue`: the task holds enough, whatever the numbers say."""
        self._enough = enough
        self._least = least
        self._overdue = overdue
        self.at: Position | None = None

    def before(self, events: Iterable[tuple[bytes, Header]]) -> Iterator[tuple[bytes, Header]]:
        """The events before the early end, which is `at` afterwards; all events if there is none."""
        most_events, most_bytes, overdue = self._enough.events, self._enough.bytes, self._overdue
        held = last = 0
        for count, pair in enumerate(events):
            event, header = pair
            if header.time > last:
                if last and (count >= most_events or held >= most_bytes or overdue()):
                    at = Position(ClusterTime.from_int(header.time))
                    if at >= self._least:
                        self.at = at
                        return
                last = header.time
            held += len(event)
            yield pair
