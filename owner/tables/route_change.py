"""`places`, `rename_problems`, `ready`: what changed routes do to the names of a changefeed's tables downstream. Pure.

    routes   shop.* to dr.*  ──▶  shop.* to dr2.*        tables shop.a, shop.b

    rename   dr.a to dr2.a, dr.b to dr2.b: the target's tables with their rows. Only where each of them has one table of the source and a free new name
    copy     shop.a and shop.b are copied anew, to dr2.a and dr2.b; dr.a and dr.b stay at the target as they are

A rename waits for the one that frees its new name. Names that are exchanged in a circle would need a further name, so they are refused.
A view has no rows: it is dropped and created.

A place `at` which a table is differs from its `origin` when an earlier change of the routes was not carried out to its end: then the table has been
renamed already, to a name that it does not have under either routes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from changefeed.config.tables.routes import Routes
from changefeed.printable import named
from changefeed.records.ddl import TargetRename
from changefeed.table import TableKind, TableName, TableSchema

_COPY = "write --routes copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A table, with its names at the target: by the routes of the status, at present, and by the new routes."""

    table: TableSchema
    origin: TableName
    at: TableName
    to: TableName

    @property
    def moves(self) -> bool:
        return self.at != self.to


def places(
    tables: Iterable[TableSchema], before: Routes, now: Routes, renames: Mapping[TableName, TargetRename]
) -> list[Place]:
    found = []
    for table in tables:
        origin = before.target(table.name)
        done = renames.get(origin)
        at = done.to if done is not None and done.done else origin
        found.append(Place(table=table, origin=origin, at=at, to=now.target(table.name)))
    return found


def rename_problems(places: Iterable[Place]) -> Iterator[str]:
    """Why the target's tables cannot be renamed to the new names."""
    places = list(places)
    for place in places:
        if place.moves and place.table.kind is TableKind.TIMESERIES:
            yield f"{place.at} is a time series, which no server renames; {_COPY}, or keep its name"
    for at, group in _grouped(places, lambda place: place.at):
        if len({place.to for place in group}) > 1:
            yield f"{at} holds the rows of {_list(group)}, which would get different names; {_COPY}"
    for to, group in _grouped(places, lambda place: place.to):
        if len({place.at for place in group}) > 1:
            yield f"the rows of {_list(group)} would come into one table, {to}; {_COPY}"
    circle = _circle(places)
    if circle:
        yield (
            f"{', '.join(map(str, circle))} exchange their names, which needs a further name; {_COPY}, or rename them in two updates, with a resume "
            "in between"
        )


def undecided(places: Iterable[Place]) -> str:
    """For a user who has not said how tables come to their new names."""
    moving = sorted((place for place in places if place.moves), key=lambda place: place.at)
    return (
        f"routes: {named(f'{place.at} becomes {place.to}' for place in moving)} at the target. Their rows are under the old names; write --routes rename, and the target's tables are renamed, or "
        "--routes copy, and the tables are copied anew from the source, while what has the old names stays"
    )


def ready(
    places: Iterable[Place], left: Mapping[TableName, TargetRename]
) -> dict[TableName, tuple[TableName, TableName]]:
    """The renames that may begin, by `origin`: from the name that a table has to its new one, which no other table has. `left`: not done yet."""
    moving = {place.at: place for place in places if place.moves and _has_rows(place)}
    return {
        place.origin: (at, place.to)
        for at, place in sorted(moving.items())
        if place.to not in moving and place.origin not in left
    }


def _circle(places: Iterable[Place]) -> list[TableName]:
    """The tables that wait for each other's names."""
    next_name = {place.at: place.to for place in places if place.moves and _has_rows(place)}
    for name in sorted(next_name):
        seen = [name]
        while (following := next_name.get(seen[-1])) is not None and following not in seen:
            seen.append(following)
        if following == name:
            return seen
    return []


def _has_rows(place: Place) -> bool:
    return place.table.kind is not TableKind.VIEW


def _grouped(places: Iterable[Place], name: Callable[[Place], TableName]) -> Iterator[tuple[TableName, list[Place]]]:
    found: dict[TableName, list[Place]] = defaultdict(list)
    for place in places:
        found[name(place)].append(place)
    for each, group in sorted(found.items()):
        if len(group) > 1:
            yield each, group


def _list(group: Iterable[Place]) -> str:
    return ", ".join(sorted(str(place.table.name) for place in group))
