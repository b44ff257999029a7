"""`operations`: the operations of a transaction of any size. One entry of its chain is in memory at a time.

The chain is followed from its end to its beginning, reading only times, and is then read from its beginning. A missing part is
`HistoryLost`. Parts may be before the range that contains the end: a transaction belongs to the range of the entry that makes it visible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from changefeed.cluster_time import ClusterTime
from source.oplog.command_entry import CommandEntry

EntryAt: TypeAlias = Callable[[ClusterTime, Mapping[str, object] | None], bytes]
"""The entry of that time, with the projection applied if there is one. Raises `HistoryLost` if it is gone."""

_LINKS = {"ts": 1, "prevOpTime": 1, "multiOpType": 1, "op": 1, "o.partialTxn": 1, "o.prepare": 1, "o.applyOps.op": 1}


def parts(entry_at: EntryAt, last: CommandEntry) -> Iterator[CommandEntry]:
    """The entries of the transaction in order. `last` makes them visible."""
    for ts in _earlier(entry_at, last):
        yield CommandEntry.of(entry_at(ts, None))
    yield last


def operations(entry_at: EntryAt, last: CommandEntry) -> Iterator[tuple[bytes, bool]]:
    """Numbered in this order, they are places within the time of `last`."""
    for part in parts(entry_at, last):
        yield from part.operations()


def _earlier(entry_at: EntryAt, last: CommandEntry) -> list[ClusterTime]:
    times: list[ClusterTime] = []
    previous_ts = last.previous_ts
    while previous_ts is not None:
        times.append(previous_ts)
        previous_ts = CommandEntry.of(entry_at(previous_ts, _LINKS)).previous_ts
    return times[::-1]
