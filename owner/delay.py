"""`horizon`: from where on changes are too new for a changefeed with a delay. Pure.

    delay 1h, everything up to 12:00:05 of the source's clock is known      11:00:05: what is there or later waits
    no delay, or a target, as a cut-over sets one                           None: nothing waits
    a first copy is not done                                                None: its rows are of now, and are consistent only later

A first copy is one of a table with which the changefeed began. A table that is stopped counts as done: it may wait for its user for ever. Once
the delay has begun, as the status says, no copy ends it: changes of the other tables must not be let through.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from changefeed.config.configuration import Configuration
from changefeed.position import Position
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId


def horizon(
    configuration: Configuration,
    status: ChangefeedStatus,
    resolved: Position,
    copying: Callable[[Position], Collection[TableId]],
) -> Position | None:
    """`copying`: the tables that began at a position with a copy that goes on."""
    if configuration.delay is None or configuration.target is not None:
        return None
    began_at = status.copied_from if status.overdue_seconds is None else None
    if began_at is not None and copying(began_at):
        return None
    return Position(resolved.ts.earlier_by(configuration.delay.span))
