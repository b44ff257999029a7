"""Views that stand at the source where tables begin with a copy. They have no rows, so no node is given one: the owner makes them downstream.

Before the beginning is recorded: whoever begins once more finds them made.
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
    """Takes a while. One that stands there with another definition is refused."""

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
