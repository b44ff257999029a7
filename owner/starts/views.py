"""`make_views`: creates the source's views downstream, where tables begin with a copy. Views have no rows, so no node gets them.

They are created before the beginning is recorded: a restarted owner finds them already created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing

from changefeed.config.configuration import Configuration
from changefeed.table import TableKind, TableName, TableSchema
from sink.ddl import DdlApplier, Routing, create_copy, names_of


def make_views(
    tables: Iterable[TableSchema], configuration: Configuration, open_sink: Callable[[], DdlApplier]
) -> None:
    """Takes a while. An existing view with another definition is an error."""

    def route(name: TableName) -> TableName | None:
        return configuration.routes.target(name) if configuration.filter.wants_table(name) else None

    tables = list(tables)
    views = [table for table in tables if table.kind is TableKind.VIEW]
    if not views:
        return
    routing = Routing(route=route, tables={table.id: table.name for table in tables})
    with closing(open_sink()) as sink:
        for view in views:
            what = create_copy(view, configuration.routes.target(view.name), routing)
            sink.apply(what, sink.observe(names_of(what)))
