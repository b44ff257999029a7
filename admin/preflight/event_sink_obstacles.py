"""`event_sink_obstacles`: what keeps a changefeed from writing messages, or from changing how it does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.config.live_options import differing
from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.config.sinks.message_options import FormatName, Images
from changefeed.table import TableKind, TableSchema
from sink.opening import open_sink

_MOST_NAMED = 5
_SHOWS_DDL = (6, 0)


def event_sink_obstacles(
    configuration: Configuration,
    tables: Sequence[TableSchema],
    version: tuple[int, int] | None,
    capture: Capture | None,
    before: Configuration | None,
    *,
    reached: bool,
) -> Iterator[str]:
    """`version`: the source's. `before`: the configuration that an update replaces. `reached`: the sink can be asked."""
    if before is not None and (before.sink_traits.keeps_messages or configuration.sink_traits.keeps_messages):
        same_place = str(before.sink) == str(configuration.sink)
        changed = [name for name in differing(configuration, before) if name != "sink" or not same_place]
        if changed:
            yield (
                f"{', '.join(changed)}: found a change, and the messages that exist were written with the options of before; create another "
                "changefeed, with a directory or prefix of its own"
            )
        return
    if not configuration.sink_traits.keeps_messages:
        return
    route = configuration.routes.target
    if reached:
        yield from open_sink(configuration).obstacles(
            {route(table.name) for table in tables if table.kind is not TableKind.VIEW}
        )
    if capture is Capture.CHANGE_STREAM and version is not None and version < _SHOWS_DDL:
        yield (
            f"sink: the change streams of MongoDB {version[0]}.{version[1]} do not show all DDL, and messages would lack it; let the source's user "
            "read local.oplog.rs (read on the database local), upgrade the source to 6.0, or name a MongoDB as sink"
        )
    shared = sorted(str(table.name) for table in tables if configuration.routes.gathers(table.name))
    if shared:
        names = ", ".join(shared[:_MOST_NAMED])
        yield f"routes: found tables that share one name ({names}); a reader could not tell a DDL of one from one of all: give each its own name"


def event_sink_warnings(configuration: Configuration) -> Iterator[str]:
    sink = configuration.sink
    if configuration.images is not Images.NONE or sink.scheme != "kafka":
        return
    if KafkaSinkOptions.parse(sink.reference).messages.format is FormatName.DEBEZIUM:
        yield (
            "sink: with format=debezium and without images, `after` is null in the message of an update, and `updateDescription` says what changed; "
            "consumers that need whole documents apply the changes themselves, or write images: available (6.0; see docs/events.md)"
        )
