"""Whether another capture may go on from where a changefeed stands. Pure.

Inside one cluster time a position names its place in its capture's own way, so positions of two captures are only compared where no such place
is named. A changefeed changes its capture when all that is yet to come begins at one bare time, and all that is known lies before it:

    tables   a@100.1, b@100.1      records  rename a@99.7/8263... done      may change; the record is folded into a's base
    tables   a@100.1, b@98.2                                                b is not where a is
    tables   a@100.1/8264..2D                                               a stands inside a transaction
    records  createIndexes b@100.1/8264... pending                          it has its place yet to be reached
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from changefeed.position import Position
from changefeed.records import DdlRecord
from changefeed.table import TableName

_LEVEL_THEM = "resume it and pause it again while writers rest, or give it a target: where it has finished, all its tables stand at that time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a changefeed stands that has begun."""

    still: bool
    checkpoint: Position
    resolved: Position
    """Where its DDL watch goes on."""
    places: Mapping[TableName, Position]
    """Of tables with rows; one that is with no node begins there where it is given one."""
    copying: AbstractSet[TableName]
    records: Iterable[DdlRecord]

    @property
    def at(self) -> Position:
        """Where all tables are, if nothing is in the way."""
        return max([self.checkpoint, *self.places.values()])


def obstacle(standing: Standing) -> str | None:
    """By name, with what to do about it."""
    looks = (_at_work, _open_ddl, _copy, _position_inside_a_time, _uneven_table, _late_ddl)
    return next((found for look in looks for found in look(standing)), None)


def _at_work(standing: Standing) -> Iterator[str]:
    if not standing.still:
        yield "its pipelines do not stand still yet; pause it, and try again in a moment"


def _open_ddl(standing: Standing) -> Iterator[str]:
    for record in _in_order(standing):
        if record.open:
            yield f"{record.event} is not done; resume it, and pause it again when `sluice ddl list` shows none open"


def _copy(standing: Standing) -> Iterator[str]:
    for name in sorted(standing.copying):
        yield f"table {name} is being copied; resume it, and pause it again after the copy"


def _position_inside_a_time(standing: Standing) -> Iterator[str]:
    for name, place in sorted(standing.places.items()):
        if place.token:
            yield f"table {name} stands between changes of one cluster time, {place.ts}; {_LEVEL_THEM}"
    for position in (standing.at, standing.resolved):
        if position.token:
            yield f"its DDL watch stands between changes of one cluster time, {position.ts}; {_LEVEL_THEM}"


def _uneven_table(standing: Standing) -> Iterator[str]:
    for name, place in sorted(standing.places.items()):
        if place != standing.at:
            yield f"table {name} stands at {place.ts}, and others at {standing.at.ts}; {_LEVEL_THEM}"


def _late_ddl(standing: Standing) -> Iterator[str]:
    """A view's, or an index build that ran beside the rows."""
    for record in _in_order(standing):
        if record.position >= standing.at:
            yield f"{record.event} is done, and no table has come so far; {_LEVEL_THEM}"


def _in_order(standing: Standing) -> list[DdlRecord]:
    return sorted(standing.records, key=lambda record: record.position)
