"""`translated`: what a recorded DDL is at the sink, in the sink's names; or why it is refused. Pure."""

from __future__ import annotations

from dataclasses import replace

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.errors import DdlRefused
from changefeed.event import DdlEvent, DdlType
from changefeed.records.ddl import DdlRecord
from changefeed.table import TableName
from owner.ddl.scope import ANEW
from schema_store.versions import SchemaVersions
from sink.ddl import DownstreamDdl, Routing, downstream, dropped_instead


def translated(record: DdlRecord, tip: SchemaVersions, configuration: Configuration, capture: Capture) -> DownstreamDdl:
    """`tip`: with every DDL that is recorded. Raises `DdlRefused`."""

    def route(name: TableName) -> TableName | None:
        return configuration.routes.target(name) if configuration.filter.wants_table(name) else None

    event = record.event
    touched = record.scope.tables | record.scope.apart
    before = {table: tip.before(table, record.position) for table in touched}
    names = {table: schema.name for table, schema in before.items() if schema is not None}
    beside = {schema.name: schema.beside.name for schema in before.values() if schema and schema.beside}
    if event.type is DdlType.DROP_DATABASE:
        named = record.scope.names  # a table without a name downstream is not among them
        names = {table: name for table, name in names.items() if configuration.routes.target(name) in named}
    if (refused := shown_otherwise(event, configuration)) and not record.drops:
        raise DdlRefused(refused)
    if refused := not_explained(event) or not_replicable(event, configuration, capture):
        raise DdlRefused(refused)
    translate = dropped_instead if record.drops else downstream
    event = replace(event, drop_target=None) if record.taken else event
    return translate(event, Routing(route=route, tables=names, beside=beside))


def not_explained(event: DdlEvent) -> str:
    """Why a DDL is refused that does not fit what is known of its tables. Empty for any other DDL."""
    return f"{event}: it does not fit what is known of its tables; {ANEW}" if event.type is DdlType.UNKNOWN else ""


def not_replicable(event: DdlEvent, configuration: Configuration, capture: Capture) -> str:
    """Why a created table is refused. Empty for any other DDL."""
    if event.type is not DdlType.CREATE or event.table is None or "timeseries" not in event.description.decode():
        return ""
    why = configuration.series_obstacle(event.table, capture)
    return f"{event}: {event.table} is a time series: {why}" if why else ""


def shown_otherwise(event: DdlEvent, configuration: Configuration) -> str:
    """Why a rename is refused after which other fields would be left out, masked or hashed: the table's rows would be a mixture. Empty for any
    other DDL.
    """
    old, new = event.table, event.renamed_to
    if old is None or new is None or not all(map(configuration.filter.wants_table, (old, new))):
        return ""
    if configuration.columns_of(old) == configuration.columns_of(new):
        return ""
    return (
        f"{event}: `columns` shows other fields of {new} than of {old}, and rows that are at the target stay as they are; leave the "
        "table out (filter.tables), drop it at the target, and have the changefeed replicate it again: then it is copied"
    )
