"""`chain`: which part of which manifest shows a table from one position to another, without a gap. Pure.

A worked example. Node 1 died after its second commit and before etcd knew of it; node 2 ran the window again, with another end:

    manifest 1    [100, 110)
    manifest 2    [110, 120)
    manifest 3         [115, 130)       from 100 to 125: 1 [100, 110), 2 [110, 120), 3 [120, 125)
    manifest 4                [131, 140)    from 125 to 135: a gap, nothing holds 130 to 131
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from changefeed.position import Position, Window
from sink.reading.stored_message import MessageGap

M = TypeVar("M")


def chain(
    table: str, ranges: Iterable[tuple[Window, M]], start: Position, end: Position, *, whole: bool = True
) -> list[tuple[Window, M]]:
    """`ranges`: those of the table, in any order. Not `whole`: as far as they meet."""
    found: list[tuple[Window, M]] = []
    at = start
    for window, manifest in sorted(ranges, key=lambda each: (each[0].start, each[0].end)):
        if window.end <= at or at >= end:
            continue
        if window.start > at:
            break
        reached = min(window.end, end)
        found.append((Window(at, reached), manifest))
        at = reached
    if whole and at < end:
        raise MessageGap(
            f"table {table}: expected its messages from {at} on, up to {end}, found none in any manifest; files of the directory are "
            f"missing, or a node could not see what another one wrote: restore the files, or create the changefeed again"
        )
    return found
