"""`resolved`, `nudges`: up to which time a cluster's history is complete, and which streams are asked to move on. Pure.

    stream   majority point   oldest undecided prepare   complete below
    cfg      100.9            none                       100.10
    sa       105.2            103.1                      103.1
    sb       101.4            none                       101.5

Everything of an effective time below 100.10 is known: the streams have it, and no undecided transaction can still commit below it, as its
commit timestamp is not before any of its prepares. Here cfg holds the rest back. It is idle, and writes a no-op each second, a shard each
ten seconds. If a row or a DDL waits on sa, cfg and sb are nudged to 105.2: they write a no-op and answer once their majority has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from changefeed.cluster_time import ClusterTime


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPoint:
    """How far one stream was read."""

    read_ts: ClusterTime
    """Exclusive: everything before it was read, and a majority has it."""
    prepared_ts: ClusterTime | None = None
    """The oldest prepare that was read without its decision."""
    waiting_ts: ClusterTime | None = None
    """A row or DDL of a user that was read here, and may not be resolved yet."""

    @property
    def complete_ts(self) -> ClusterTime:
        return self.read_ts if self.prepared_ts is None else min(self.read_ts, self.prepared_ts)


def resolved(points: Mapping[str, StreamPoint]) -> ClusterTime:
    """Exclusive, over all streams of the cluster."""
    return min(point.complete_ts for point in points.values())


def held_by(points: Mapping[str, StreamPoint]) -> tuple[str, ...]:
    """The streams that keep the resolved time from going on."""
    lowest = resolved(points)
    return tuple(sorted(name for name, point in points.items() if point.complete_ts == lowest))


def nudges(points: Mapping[str, StreamPoint]) -> Mapping[str, ClusterTime]:
    """The streams that have to reach a time so that what waits is resolved. A no-op waits for nobody: each nudge writes one.

    A stream that an undecided prepare holds is not nudged: no time helps.
    """
    lowest = resolved(points)
    waiting = [point.waiting_ts for point in points.values() if point.waiting_ts is not None]
    wanted = max((ts for ts in waiting if ts >= lowest), default=None)
    if wanted is None:
        return {}
    return {name: wanted for name, point in points.items() if point.read_ts <= wanted}
