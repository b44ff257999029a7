"""`event_sink_obstacles`: what keeps a changefeed from writing messages, or from changing how it does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.config.live_options import differing
from changefeed.table import TableKind, TableSchema
from sink.opening import event_sink

_MOST_NAMED = 5
_SHOWS_DDL = (6, 0)


def event_sink_obstacles(
    configuration: Configuration,
    tables: Sequence[TableSchema],
    version: tuple[int, int] | None,
    capture: Capture | None,
    before: Configuration | None,
) -> Iterator[str]:
    """`version`: the source's. `before`: the configuration that an update replaces."""
    if before is not None and (before.sink_can.keeps_messages or configuration.sink_can.keeps_messages):
        same_place = str(before.sink) == str(configuration.sink)
        changed = [name for name in differing(configuration, before) if name != "sink" or not same_place]
        if changed:
            yield (
                f"{', '.join(changed)}: found a change, and the messages that exist were written with the options of before; create another "
                "changefeed, with a directory or prefix of its own"
            )
        return
    sink = event_sink(configuration)
    if sink is None:
        return
    route = configuration.routes.target
    yield from sink.obstacles({route(table.name) for table in tables if table.kind is not TableKind.VIEW})
    if capture is Capture.CHANGE_STREAM and version is not None and version < _SHOWS_DDL:
        yield (
            f"sink: the change streams of MongoDB {version[0]}.{version[1]} do not show all DDL, and messages would lack it; let the source's user "
            "read local.oplog.rs (read on the database local), upgrade the source to 6.0, or name a MongoDB as sink"
        )
    series = sorted(str(table.name) for table in tables if table.kind is TableKind.TIMESERIES)
    if series:
        names = ", ".join(series[:_MOST_NAMED])
        yield f"filter.tables: found time-series ({names}), whose rows are no messages; leave them out (filter.tables)"
    shared = sorted(str(table.name) for table in tables if configuration.routes.gathers(table.name))
    if shared:
        names = ", ".join(shared[:_MOST_NAMED])
        yield f"routes: found tables that share one name ({names}); a reader could not tell a DDL of one from one of all: give each its own name"
