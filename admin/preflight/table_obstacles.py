"""What keeps tables of the source from being replicated as a configuration says: time series, and columns that are left out or shown otherwise. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from admin.preflight.privileges import Privileges, missing_of_buckets
from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.config.tables.filter import series_release_obstacle
from changefeed.documents.document import meet
from changefeed.table import TableKind, TableName, TableSchema
from sink.mongodb.ddl.target_definition import EXPIRY

_MOST_NAMED = 5


def series_obstacles(
    configuration: Configuration,
    tables: Iterable[TableSchema],
    capture: Capture | None,
    releases: tuple[tuple[int, int] | None, tuple[int, int] | None],
    users: tuple[Privileges, Privileges | None],
) -> Iterator[str]:
    """`releases`, `users`: of the source and of the target; None: it does not answer, or is no MongoDB."""
    series = sorted((table.name for table in tables if table.kind is TableKind.TIMESERIES), key=str)
    if not series or capture is Capture.SHARD_OPLOGS:
        return
    found = {
        name: why for name in series if capture is not None and (why := configuration.series_obstacle(name, capture))
    }
    yield from (f"filter.tables: {name}: {why}" for name, why in list(found.items())[:_MOST_NAMED])
    source, target = releases
    names = ", ".join(map(str, series[:_MOST_NAMED]))
    if source is not None and (why := series_release_obstacle(source, target or source)):
        yield f"filter.tables: {names}: {why}"
    if not found:
        at_source = {name.db for name in series}
        at_target = {configuration.routes.target(name).db for name in series}
        yield from missing_of_buckets(*users, at_source, at_target)


_KNOWS_PARENTS_SINCE = (5, 0)
_GEO = frozenset({"2d", "2dsphere", "geoHaystack"})


def column_obstacles(
    configuration: Configuration,
    tables: Iterable[TableSchema],
    version: tuple[int, int] | None,
    before: Configuration | None,
    known: Iterable[TableName],
) -> Iterator[str]:
    """`before`: what an update replaces, and `known` the tables that it has already."""
    for table in tables:
        yield from (f"columns: {table.name}: {problem}" for problem in _of_table(configuration, table, version))
    for name in known:
        changed = before is not None and before.columns_of(name) != configuration.columns_of(name)
        if changed and configuration.filter.wants_table(name):
            yield (
                f"columns: {name} is replicated already, and its rows at the target would stay as they are; leave it out (filter.tables), drop it at "
                "the target, then have the changefeed replicate it again with the new columns: it is copied then"
            )


def column_warnings(configuration: Configuration, tables: Iterable[TableSchema]) -> Iterator[str]:
    for table in tables:
        shown = {**_paths(configuration, table.name, "drop", "mask", "hash")}
        for index in table.indexes if shown else ():
            fields = index.decode()
            touched = [path for path in shown if any(meet(path, key) for key in fields["key"])]
            condition = fields.get("partialFilterExpression", {})
            filtered = [path for path in shown if any(meet(path, name) for name in condition)]
            if touched and EXPIRY in fields:
                yield (
                    f"columns: {table.name}: index {fields['name']} expires documents by {touched[0]}, which is no date at the target: there it "
                    "expires nothing; the deletes of the source are replicated as long as the changefeed runs"
                )
            elif filtered:
                yield (
                    f"columns: {table.name}: index {fields['name']} has a condition on {filtered[0]}, which is another value at the target: there "
                    "it contains other documents"
                )


def expires(table: TableSchema) -> bool:
    """Whether documents of it do, by an index or as a whole."""
    return EXPIRY in table.options.decode() or any(EXPIRY in index.decode() for index in table.indexes)


def _of_table(configuration: Configuration, table: TableSchema, version: tuple[int, int] | None) -> Iterator[str]:
    shown = _paths(configuration, table.name, "drop", "mask", "hash")
    if not shown:
        return
    nested = [path for path, how in shown.items() if how == "drop" and "." in path]
    if nested and version is not None and version < _KNOWS_PARENTS_SINCE:
        yield (
            f"drop: {nested[0]} is inside another field, and before 5.0 an update does not say whether it has created that field; mask it "
            f"instead, or drop {nested[0].partition('.')[0]} as a whole"
        )
    if table.shard_key is not None:
        for path in shown:
            if any(meet(path, key) for key in table.shard_key.decode()):
                yield f"{path} is part of the shard key, by which rows are found; leave it as it is"
    for index in table.indexes:
        yield from _of_index(index.decode(), shown)


def _of_index(index: dict[str, Any], shown: Mapping[str, str]) -> Iterator[str]:
    unique = index.get("unique") or index.get("prepareUnique")
    for key, kind in index["key"].items():
        for path, how in shown.items():
            if not meet(path, key):
                continue
            if unique and how != "hash":
                yield (
                    f"{how}: {path} is part of the unique index {index['name']}, which would refuse equal values at the target; hash it: then "
                    "different values stay different"
                )
            if kind in _GEO and how != "drop":
                yield f"{how}: {path} is part of the index {index['name']}, which takes positions only; drop it instead"


def _paths(configuration: Configuration, name: TableName, *hows: str) -> dict[str, str]:
    """How each path that rules name is shown."""
    rules = configuration.columns_of(name)
    return {path: how for how in reversed(hows) for rule in rules for path in getattr(rule, how)}
