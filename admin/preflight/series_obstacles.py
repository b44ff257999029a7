"""`series_obstacles`: what keeps the time series that there are from being replicated. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from admin.preflight.privileges import Privileges, missing_of_buckets
from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.config.tables.filter import series_release_obstacle
from changefeed.table import TableKind, TableSchema

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
