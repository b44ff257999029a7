"""`make_views`: creates the source's views downstream, where tables begin with a copy. Views have no rows, so no node gets them.

They are created before the beginning is recorded: a restarted owner finds them already created.

`remake_views`: what changed routes do to views: they get other names, or read tables that have got other names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing

from changefeed.config.configuration import Configuration
from changefeed.config.tables.routes import Routes
from changefeed.errors import DdlUnsupported
from changefeed.records.requests import Reroute
from changefeed.table import TableKind, TableName, TableSchema
from owner.tables.route_change import Place
from sink.ddl import CreateTable, DdlApplier, DropTables, Routing, create_copy, names_of


def make_views(
    tables: Iterable[TableSchema], configuration: Configuration, open_sink: Callable[[], DdlApplier]
) -> None:
    """Takes a while. An existing view with another definition is an error."""
    tables = list(tables)
    views = [table for table in tables if table.kind is TableKind.VIEW]
    if not views:
        return
    with closing(open_sink()) as sink:
        for view in views:
            what = _created(view, configuration, configuration.routes)
            sink.apply(what, sink.observe(names_of(what)))


def remake_views(
    places: Iterable[Place],
    before: Routes,
    reroute: Reroute | None,
    configuration: Configuration,
    open_sink: Callable[[], DdlApplier],
) -> None:
    """May be repeated: a view has no rows. With `copy` a view of another name stays, as the tables of the old names do."""
    views = [place.table for place in places if place.table.kind is TableKind.VIEW]
    pairs = [
        (_created(view, configuration, before), _created(view, configuration, configuration.routes)) for view in views
    ]
    changed = [(old, new) for old, new in pairs if old != new]
    if not changed:
        return
    with closing(open_sink()) as sink:
        for old, new in changed:
            there = sink.observe([old.name])
            is_view = (found := there.tables[old.name]) is not None and found.uuid is None
            if is_view and (old.name == new.name or reroute is Reroute.RENAME):
                sink.apply(DropTables(names=(old.name,)), there)
        for _, new in changed:
            sink.apply(new, sink.observe(names_of(new)))


def view_problems(places: Iterable[Place], configuration: Configuration) -> Iterator[str]:
    """Why views cannot follow the tables that they read to their new names."""
    for place in places:
        if place.table.kind is TableKind.VIEW:
            try:
                _created(place.table, configuration, configuration.routes)
            except DdlUnsupported as error:
                yield str(error)


def _created(view: TableSchema, configuration: Configuration, routes: Routes) -> CreateTable:
    def route(name: TableName) -> TableName | None:
        return routes.target(name) if configuration.filter.wants_table(name) else None

    return create_copy(view, routes.target(view.name), Routing(route=route, tables={}))
