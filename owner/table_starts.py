"""`TableStarts`: where the tables of a changefeed begin: all tables at its start, further ones where a changed filter adds them.

Both methods read the source's catalog in a thread, and look for the answer at each tick. They create the views that have to be copied,
and write the tables before the status that refers to them.

    begin            bases, then the status with a checkpoint
    change_tables    the status without patterns, under which no node runs; the target's tables get their new names; the bases; the status with
                     the new patterns and routes

The catalog shows the tables as they are when it is read. To get them as they were at a position, the DDLs since then are read and undone
(`begin`, `tables_at`, `look_up`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from operator import eq

import structlog

from changefeed.config.configuration import Configuration
from changefeed.config.tables.filter import Filter
from changefeed.config.tables.routes import Routes
from changefeed.config.written_values import Start
from changefeed.documents.document import Document
from changefeed.errors import ConfigurationError, SluiceError, SourceUnavailable, UpdateWaits
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import Sign
from changefeed.position import Position, Window
from changefeed.records.ddl import Barrier, DdlRecord
from changefeed.records.requests import Reroute
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId, TableKind, TableName, TableSchema, definition_of, identified
from owner.background import Background
from owner.connections import SourceConnection
from owner.ddl.stragglers import nameless
from owner.decision.state import published
from owner.etcd_view import OwnerView
from owner.etcd_writes import ChangefeedWriter
from owner.owner_memory import Lifecycles
from owner.tables import filter_change, route_change
from owner.tables.filter_change import FilterChange
from owner.tables.route_change import Place
from owner.target_changes import TargetRenames, abandoned_copies, make_views, remake_views
from schema_store.definition import new_uuid
from schema_store.rewind import rewound
from schema_store.store import SchemaStore
from sink.ddl import DropTables
from sink.sink import Sink
from source.tables.catalog import CatalogReading

_log = structlog.get_logger()


class TableStarts:
    """For the owner's thread."""

    def __init__(
        self,
        configuration: Configuration,
        source: SourceConnection,
        sink: Sink,
        writer: ChangefeedWriter,
        background: Background,
        lifecycles: Lifecycles,
    ) -> None:
        self._configuration = configuration
        self._source = source
        self._sink = sink
        self._writer = writer
        self._background = background
        self._lifecycles = lifecycles
        self._renames = TargetRenames(sink.ddl, writer, background)
        self._tables: tuple[
            Mapping[TableId, TableSchema], Mapping[Position, DdlRecord], Filter | None, Sequence[TableSchema]
        ] = ({}, {}, None, ())
        self._log = _log.bind(changefeed=configuration.id, epoch=writer.epoch)

    def begin(self, known: OwnerView, status: ChangefeedStatus) -> None:
        """For a changefeed without a checkpoint. Until it has one, its status shows why not.

        One call at a time, whatever the user wants meanwhile: the last one tells the readers of messages where the changefeed begins.
        """
        lifecycle = self._lifecycles.after(self._lifecycles.commanded(known.info, status), Sign.TICK)
        if lifecycle.running:
            try:
                beginning: Beginning | None = self._background.take(
                    "begin", lambda: self._beginning(known.info.resume_from), about=known.info.version
                )
            except SluiceError as error:
                lifecycle = self._lifecycles.after(lifecycle, error)
            else:
                if beginning is not None:
                    self._write_beginning(known, status, beginning)
                    return
        begun = replace(self.fresh_status(known, run=status.run), lifecycle=lifecycle)
        if begun != known.status:
            self._writer.status(begun, known.status)

    def _beginning(self, resume_from: Position | None) -> Beginning:
        beginning = begin(self._source, self._configuration, resume_from)
        check_names(self._configuration.routes, beginning.tables)
        tables = [replace(table, copied=beginning.copied) for table in beginning.tables]
        route = self._configuration.routes.target
        self._sink.claim(beginning.position, [(table, route(table.name)) for table in tables])
        if not beginning.copied:
            return beginning
        make_views(tables, self._configuration, self._sink.ddl)
        return replace(beginning, tables=self._to_copy(tables))

    def fresh_status(self, known: OwnerView, *, run: int) -> ChangefeedStatus:
        return ChangefeedStatus(
            run=run, info_version=known.info.version, epoch=self._writer.epoch, capture=known.info.capture
        )

    def _write_beginning(self, known: OwnerView, status: ChangefeedStatus, beginning: Beginning) -> None:
        begun = replace(
            self.fresh_status(known, run=status.run + 1),
            start=beginning.position,
            copied_from=beginning.position if beginning.copied else None,
            tables=self._configuration.filter.tables,
            routes=self._configuration.routes,
            checkpoint=beginning.position,
            resolved=beginning.position,
        )
        barrier = Barrier(epoch=self._writer.epoch, position=beginning.position)
        self._writer.beginning(beginning.tables, begun, barrier)
        self._log.info("changefeed_begun", position=str(beginning.position), tables=len(beginning.tables))

    def change_tables(self, known: OwnerView, status: ChangefeedStatus) -> bool:
        """To the tables of `known.info`. Returns whether the change is done. Raises if something blocks it.

        Nodes run on until the first write, which ends their run. The barrier stands still meanwhile, and so does `known`: only the owner
        writes what the change depends on.
        """
        position, asked = published(status, known.barrier), known.info.configuration
        if blocking := self.blocking(known, status):
            raise ConfigurationError([filter_change.waits_for(blocking)])
        moving = self._moving(known, status)
        if not self._renames.go_on(known, status, moving if known.info.reroute is Reroute.RENAME else []):
            return False
        change: FilterChange | None = self._background.take(
            "tables", lambda: self._change(known, status, position, moving), about=known.info.version
        )
        if change is None:
            return False
        marked = replace(status, tables=(), taken_in_at=status.taken_in_at | {position})
        changed = replace(
            marked,
            tables=asked.filter.tables,
            routes=asked.routes,
            lifecycle=self._lifecycles.commanded(known.info, status),
            resolved=position,
            run=status.run + 1,
            info_version=known.info.version,
            epoch=self._writer.epoch,
            still=False,
        )
        assignments = {node: assigned.record for node, assigned in known.assignments.items()}
        self._writer.tables(marked, change, changed, assignments)
        self._log.info("tables_changed", position=str(position), taken_in=len(change.taken_in), anew=len(change.anew))
        return True

    @staticmethod
    def waits(known: OwnerView, status: ChangefeedStatus) -> bool:
        """Whether tables cannot change yet. The position must be a bare time: a DDL that stands at it would be about tables that begin there,
        and a table is known from where it begins, not before.
        """
        return bool(published(status, known.barrier).token) or bool(TableStarts.blocking(known, status))

    @staticmethod
    def blocking(known: OwnerView, status: ChangefeedStatus) -> Sequence[DdlRecord]:
        """The open DDLs that are in the way of the tables of `known.info`."""
        records = known.records.values()
        waiting = nameless(records).keys()
        return filter_change.in_the_way(
            known.info.configuration.filter, published(status, known.barrier), records, waiting
        )

    @staticmethod
    def update_waits(known: OwnerView, status: ChangefeedStatus) -> UpdateWaits | None:
        """Told only if it waits for a user."""
        blocking = [] if status.follows(known.info.configuration) else TableStarts.blocking(known, status)
        refused = [record for record in blocking if record.refused is not None]
        return UpdateWaits(filter_change.waits_for(refused)) if refused else None

    def _moving(self, known: OwnerView, status: ChangefeedStatus) -> list[Place]:
        """The places of all tables that stay, if some move: how they do is the user's decision."""
        routes = known.info.configuration.routes
        if not status.reroutes(known.info.configuration) and not known.renames:
            return []
        places = route_change.places(self._wanted(known), status.routes or routes, routes, known.renames)
        if known.info.reroute is None and any(place.moves for place in places):
            raise ConfigurationError([route_change.undecided(places)])
        if known.info.reroute is Reroute.RENAME and (problems := list(route_change.rename_problems(places))):
            raise ConfigurationError([f"routes: {problem}" for problem in problems])
        return places

    def _wanted(self, known: OwnerView) -> Sequence[TableSchema]:
        """The tables that stay; one whose name was taken does not. Derived once: thousands of renames take many ticks, and neither bases nor records change meanwhile."""
        patterns = known.info.configuration.filter
        if self._tables[:3] != (known.bases, known.records, patterns):
            found = SchemaStore.from_records(known.bases.values(), known.records.values()).versions.living()
            waiting = nameless(known.records.values())
            wanted = [schema for _, schema in found if patterns.wants_table(schema.name) and schema.id not in waiting]
            self._tables = (known.bases, known.records, patterns, wanted)
        return self._tables[3]

    def _change(
        self, known: OwnerView, status: ChangefeedStatus, position: Position, places: Sequence[Place]
    ) -> FilterChange:
        asked, records = known.info.configuration, known.records.values()
        patterns, routes = asked.filter, asked.routes
        versions = SchemaStore.from_records(known.bases.values(), records).versions
        living = [schema for _, schema in versions.living()]
        found = identified(tables_at(self._source, patterns.wants_table, position), living)
        free, taken = filter_change.with_free_names(routes, records, found)
        if not status.follows(asked):
            check_names(routes, found)
        copied = {place.table.id for place in places if place.moves and place.table.kind is not TableKind.VIEW}
        change = filter_change.plan(
            patterns, position, known.bases, records, found, anew=free | copied, without_name=taken
        )
        if left := abandoned_copies(patterns, living, free | copied):
            with closing(self._sink.ddl()) as sink:
                sink.apply(DropTables(names=left), sink.observe(left))
        remake_views(places, status.routes or routes, known.info.reroute, asked, self._sink.ddl)
        make_views(change.taken_in, asked, self._sink.ddl)
        return replace(change, taken_in=self._to_copy(change.taken_in))

    def _to_copy(self, tables: Sequence[TableSchema]) -> tuple[TableSchema, ...]:
        sizes = self._source.sizes([table.name for table in tables if table.kind is not TableKind.VIEW])
        return tuple(replace(table, copied=True, size=sizes.get(table.name)) for table in tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The changefeed's start, and its tables as they were there."""

    position: Position
    tables: tuple[TableSchema, ...]
    copied: bool
    """Whether their documents have to be copied first."""


def begin(source: SourceConnection, configuration: Configuration, resume_from: Position | None) -> Beginning:
    """A start in the future counts as a start now, since nothing happens in between."""
    reading = source.read_tables(configuration.filter.wants_table)
    start = configuration.start
    asked = resume_from or (None if isinstance(start, Start) else Position(start))
    if asked is None or asked >= reading.position:
        copied = asked is None and start is Start.INITIAL
        return Beginning(position=reading.position, tables=reading.tables, copied=copied)
    tables = _as_of(asked, reading, source, configuration.filter.wants_table)
    return Beginning(position=asked, tables=tables, copied=False)


def tables_at(
    source: SourceConnection, wanted: Callable[[TableName], bool], position: Position
) -> tuple[TableSchema, ...]:
    """The wanted tables as they were at a past position."""
    reading = source.read_tables(wanted)
    if reading.position < position:
        raise SourceUnavailable(
            f"the source's catalog: expected it as of {position} or later, observed {reading.position}; it will be read again"
        )
    return _as_of(position, reading, source, wanted)


def _as_of(
    position: Position, reading: CatalogReading, source: SourceConnection, wanted: Callable[[TableName], bool]
) -> tuple[TableSchema, ...]:
    then = rewound(reading.tables, source.ddls(Window(position, reading.position)), position)
    return tuple(table for table in then if wanted(table.name))


def check_names(routes: Routes, tables: Iterable[TableSchema]) -> None:
    """The admin API has checked the tables of that moment; further ones may have been created since."""
    merged = routes.merged(table.name for table in tables)
    if merged:
        raise ConfigurationError(
            [
                f"routes: {', '.join(map(str, names))} would all be {target} at the target, and no rule asks for that; give them different names, or "
                "leave one out (filter.tables)"
                for target, names in merged.items()
            ]
        )


def look_up(source: SourceConnection, event: DdlEvent) -> Document:
    """A table that a rename brought into the filter, as the rename found it: `{options, indexes, shardKey}`.

    On a cluster the source may know it by a later UUID, if it was resharded or its database's primary shard had changed before.
    """
    name = event.renamed_to
    while True:
        reading = source.read_tables(partial(eq, name))
        ddls = list(source.ddls(Window(event.position, reading.position)))
        id = next((ddl.id for ddl in ddls if ddl.position == event.position), event.id)
        since = [ddl for ddl in ddls if ddl.position > event.position]
        last = _name_after(since, id, event.renamed_to)
        if last == name:
            break
        name = last
    table = next((table for table in rewound(reading.tables, since, event.position) if table.id == id), None)
    if table is None:
        raise SourceUnavailable(
            f"{event}: expected table {event.id} in the source's catalog or in its DDL since, observed neither; they will be read again"
        )
    return definition_of(table)


def _name_after(since: Iterable[DdlEvent], table: TableId | None, name: TableName | None) -> TableName | None:
    """Events after a new UUID name the table by it."""
    for ddl in since:
        if ddl.id == table:
            name = ddl.renamed_to or name
            table = new_uuid(ddl) if ddl.type is DdlType.NEW_UUID else table
    return name
