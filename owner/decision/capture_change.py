"""`obstacle`: whether another capture may go on from a changefeed's position. Pure.

Inside one cluster time a position names its place in its capture's own way, so positions of two captures can be compared only if they
name no such place. A changefeed may change its capture when everything still to be replicated begins at one bare time, and everything
that is recorded is before that time:

    tables   a@100.1, b@100.1      records  rename a@99.7/8263... done      may change; the record is folded into a's base
    tables   a@100.1, b@98.2                                                may not: b is not at the position of a
    tables   a@100.1/8264..2D                                               may not: a is inside a transaction
    records  createIndexes b@100.1/8264... pending                          may not: its position has not been reached yet
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.table import TableName

_LEVEL_THEM = "resume it and pause it again while writers rest, or give it a target: when it has finished, all its tables are at that time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The state of a changefeed that has begun."""

    still: bool
    checkpoint: Position
    resolved: Position
    """Where its DDL watch goes on."""
    places: Mapping[TableName, Position]
    """The positions of tables with rows. A table without a node will begin at its position."""
    copying: AbstractSet[TableName]
    stragglers: AbstractSet[TableName] = frozenset()
    records: Iterable[DdlRecord]

    @property
    def at(self) -> Position:
        """The position of all tables, if there is no obstacle."""
        return max([self.checkpoint, *self.places.values()])


def obstacle(standing: Standing) -> str | None:
    """The first obstacle to a change, with its remedy. None: the capture may change."""
    looks = (_running_pipelines, _open_ddl, _copy, _straggler, _position_inside_a_time, _uneven_table, _late_ddl)
    return next((found for look in looks for found in look(standing)), None)


def _running_pipelines(standing: Standing) -> Iterator[str]:
    if not standing.still:
        yield "its pipelines have not stopped yet; pause it, and try again in a moment"


def _open_ddl(standing: Standing) -> Iterator[str]:
    for record in _in_order(standing):
        if record.open:
            yield f"{record.event} is not done; resume it, and pause it again when `sluice ddl list` shows none open"


def _copy(standing: Standing) -> Iterator[str]:
    for name in sorted(standing.copying):
        yield f"table {name} is being copied; resume it, and pause it again after the copy"


def _straggler(standing: Standing) -> Iterator[str]:
    """Its record has a position of the present capture."""
    for name in sorted(standing.stragglers):
        yield f"table {name} is not with the others; resume it, and pause the changefeed again when `sluice table list` shows it as following"


def _position_inside_a_time(standing: Standing) -> Iterator[str]:
    for name, place in sorted(standing.places.items()):
        if place.token:
            yield f"table {name} is between changes of one cluster time, {place.ts}; {_LEVEL_THEM}"
    for position in (standing.at, standing.resolved):
        if position.token:
            yield f"its DDL watch is between changes of one cluster time, {position.ts}; {_LEVEL_THEM}"


def _uneven_table(standing: Standing) -> Iterator[str]:
    for name, place in sorted(standing.places.items()):
        if place != standing.at:
            yield f"table {name} is at {place.ts}, and others are at {standing.at.ts}; {_LEVEL_THEM}"


def _late_ddl(standing: Standing) -> Iterator[str]:
    """A DDL of a view, or an index build in the background."""
    for record in _in_order(standing):
        if record.position >= standing.at:
            yield f"{record.event} is done, but no table has reached it; {_LEVEL_THEM}"


def _in_order(standing: Standing) -> list[DdlRecord]:
    return sorted(standing.records, key=lambda record: record.position)
