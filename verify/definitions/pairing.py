"""`pairs`: finds the tables of the two sides that belong together. Pure.

routes: [{from: "shop.*", to: "dr.*"}, {from: "eu.*", to: dr.eu}]

dr.orders     shop.orders at the source, dr.orders at the target
dr.eu         eu.a and eu.b, both under one name
dr.old        not at the source; shop.old would be routed here, so this table should not exist
other.x       no route leads here and the filter does not accept other.x: it does not belong to this changefeed
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from changefeed.config.configuration import Configuration
from changefeed.config.tables.pattern import around_star, glob, literal
from changefeed.config.tables.routes import Route
from changefeed.records.ddl import ObservedTable
from changefeed.table import TableName, TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The tables of one target name. `origins` are the names at the source, of present tables or of a former one."""

    name: TableName
    origins: tuple[TableName, ...]
    sources: tuple[TableSchema, ...] = ()
    target: ObservedTable | None = None

    @property
    def fan_in(self) -> bool:
        return len(self.sources) > 1


def pairs(
    configuration: Configuration,
    source: Iterable[TableSchema],
    target: Mapping[TableName, ObservedTable],
    chosen: Callable[[TableName], bool],
) -> tuple[Pair, ...]:
    """`chosen` is called with names at the source."""
    by_target: dict[TableName, list[TableSchema]] = defaultdict(list)
    for schema in source:
        if configuration.filter.wants_table(schema.name):
            by_target[configuration.routes.target(schema.name)].append(schema)
    found = [
        Pair(
            name=name,
            origins=tuple(schema.name for schema in schemas),
            sources=tuple(schemas),
            target=target.get(name),
        )
        for name, schemas in by_target.items()
    ]
    for name, table in target.items():
        if name not in by_target and (once := origin(configuration, name)) is not None:
            found.append(Pair(name=name, origins=(once,), target=table))
    return tuple(sorted((pair for pair in found if any(map(chosen, pair.origins))), key=lambda pair: pair.name))


def origin(configuration: Configuration, name: TableName) -> TableName | None:
    """A source name that the changefeed routes to this name; None when no such name can be found."""
    if name == configuration.dead_letter or name.system:
        return None
    candidates = [_unrouted(route, name) for route in configuration.routes.leading_to(name)]
    for candidate in [*candidates, name]:
        if (
            candidate is not None
            and configuration.filter.wants_table(candidate)
            and configuration.routes.target(candidate) == name
        ):
            return candidate
    return None


def _unrouted(route: Route, name: TableName) -> TableName | None:
    db = _unfilled(route.to.db, route.from_.db, name.db)
    coll = _unfilled(route.to.coll, route.from_.coll, name.coll)
    return TableName(db, coll) if db and coll else None


def _unfilled(given: str, taken: str, name: str) -> str | None:
    fixed = literal(given)
    if fixed is not None:
        return literal(taken) if fixed == name else None
    if given == taken:
        return name if glob(taken).matches(name) else None
    before, after = around_star(given) or ("", "")
    old_before, old_after = around_star(taken) or ("", "")
    if len(name) < len(before) + len(after) or not (name.startswith(before) and name.endswith(after)):
        return None
    return old_before + name[len(before) : len(name) - len(after)] + old_after
