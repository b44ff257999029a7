"""`reversed_configuration`: the changefeed that brings back what users write at the target. Pure.

    changefeed      filter ["shop.*"], routes shop.* to dr.*      source A    sink B
    its way back    filter ["dr.*"],   routes dr.* to shop.*      source B    sink A

It says each table's rows to the table that they came from, so what a changefeed leaves out or changes of them cannot come back (`lossy`), and neither
can what several tables have under one name. Whether the two fit for the tables that there are is tested on them (`unlike`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from admin.preflight.table_obstacles import expires
from changefeed.config.configuration import Configuration, OnOccupied, Ttl
from changefeed.config.tables.pattern import TablePattern, covers
from changefeed.config.tables.routes import Route, Routes, part_under
from changefeed.errors import ConfigurationError
from changefeed.printable import named
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableKind, TableName, TableSchema

_KEPT = ("dead_letter", "on_rejected", "on_divergence", "ddl", "users", "copy_limit", "apply_limit", "pipeline")


def reversed_configuration(configuration: Configuration, id: ChangefeedId) -> Configuration:
    """With the present as its start. Raises all that a user can mend."""
    problems = list(lossy(configuration))
    patterns: list[str] = []
    for pattern in configuration.filter.tables:
        try:
            patterns += map(str, _at_target(pattern, configuration.routes))
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(problems)
    fields = configuration.model_dump(mode="json", exclude_none=True)
    reversed_fields = {
        "id": id,
        "source": fields["sink"],
        "sink": fields["source"],
        "start": "now",
        "capture": "oplog",
        "filter": {"tables": list(dict.fromkeys(patterns))},
        "routes": [{"from": str(route.to), "to": str(route.from_)} for route in configuration.routes.root],
    }
    return Configuration.parse({**reversed_fields, **{name: fields[name] for name in _KEPT if name in fields}})


def lossy(configuration: Configuration) -> Iterator[str]:
    """What of a changefeed cannot come back, or would come back otherwise."""
    if not configuration.sink_traits.keeps_documents:
        yield f"sink: a {configuration.sink.scheme} has no documents that could come back; there is a way back between MongoDBs only"
    if configuration.columns:
        tables = ", ".join(str(pattern) for rule in configuration.columns for pattern in rule.tables)
        yield (
            f"columns: the rules for {tables} drop, mask or hash fields, so the target does not have what they were; rows that users change there would "
            "come back without them"
        )
    if configuration.filter.events:
        tables = ", ".join(str(pattern) for rule in configuration.filter.events for pattern in rule.tables)
        yield f"filter.events: changes of {tables} are ignored, so the target has other rows than the source, and the way back would say so"
    for route in configuration.routes.root:
        if route.gathers:
            yield f"routes: {route.from_} to {route.to} brings several tables under one name, and nothing says of which of them a row is"
    if configuration.on_occupied is OnOccupied.KEEP:
        yield "on_occupied: keep left rows at the target that the source never had, and the way back would bring only their changes"
    if configuration.shard_target:
        yield "shard_target: the way back of sharded clusters is not supported"


def unlike(configuration: Configuration, back: Configuration, tables: Iterable[TableSchema]) -> Iterator[str]:
    """Why tables would not come back to where they are. `tables`: those of the changefeed, at its source."""
    tables = [table for table in tables if configuration.filter.wants_table(table.name)]
    names = [table.name for table in tables]
    lost = [name for name in names if not back.filter.wants_table(configuration.routes.target(name))]
    if lost:
        yield f"filter.tables: the way back would leave out {named(lost)}; name the tables one by one, or the routes of whole databases"
    moved = [name for name in names if back.routes.target(configuration.routes.target(name)) != name]
    if moved:
        yield f"routes: {named(moved)} would come back under another name; write routes whose names can be told apart"
    if configuration.ddl.ttl is Ttl.COPIED and (expiring := [table.name for table in tables if expires(table)]):
        yield (
            f"ddl.ttl: copied lets documents of {named(expiring)} expire at both sides by themselves, so no moment has the same rows at both; a way back "
            "needs ttl: deferred from the start"
        )


def notes(configuration: Configuration, tables: Iterable[TableSchema]) -> Iterator[str]:
    """What a user should know of the way back, though nothing is in the way."""
    tables = [table for table in tables if configuration.filter.wants_table(table.name)]
    if expiring := [table.name for table in tables if expires(table)]:
        yield f"way back: documents of {named(expiring)} expire at the target alone; the source's expiry is suspended until the return"
    yield (
        "way back: users and roles are brought back, too"
        if configuration.users
        else "way back: users and roles stay as they are at either side (users: false)"
    )
    if capped := [table.name for table in tables if table.options.decode().get("capped")]:
        yield f"way back: what rolls off the capped {named(capped)} at the target is deleted at the source"
    if series := [table.name for table in tables if table.kind is TableKind.TIMESERIES]:
        yield f"way back: rows of the time series {named(series)} come back between servers of one release only"


def strangers(
    configuration: Configuration, names: Iterable[TableName], at_target: Iterable[TableName]
) -> Iterator[str]:
    """Tables that the target alone has, under names that the way back would carry. `names`: of the changefeed's tables, at its source."""
    known = {configuration.routes.target(name) for name in names}
    if others := sorted(set(at_target) - known):
        yield (
            f"the target has {named(others)}, which the source has not: the way back would carry changes of rows that the source never "
            "had; drop or rename such tables, or copy them to the source first"
        )


def _at_target(pattern: TablePattern, routes: Routes) -> list[TablePattern]:
    """The patterns of the names that tables of this one have downstream."""
    plain = TablePattern(pattern.db, pattern.coll)
    found: list[TablePattern] = []
    for route in routes.near(plain):
        if covers(route.from_, plain):
            found.append(_under(route, plain))
            break
        if not covers(plain, route.from_):
            raise ConfigurationError(
                [
                    f"filter.tables: {pattern} and the route from {route.from_} have some tables in common, and some not; name them in patterns of their own"
                ]
            )
        found.append(route.to)
    else:
        found.append(plain)
    return [TablePattern(each.db, each.coll, pattern.negated) for each in found]


def _under(route: Route, pattern: TablePattern) -> TablePattern:
    return TablePattern(
        part_under(route.to.db, route.from_.db, pattern.db), part_under(route.to.coll, route.from_.coll, pattern.coll)
    )
