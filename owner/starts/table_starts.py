"""`TableStarts`: where the tables of a changefeed begin: all tables at its start, further ones where a changed filter adds them.

Both methods read the source's catalog in a thread, and look for the answer at each tick. They create the views that have to be copied,
and write the tables before the status that refers to them.

    begin            bases, then the status with a checkpoint
    change_tables    the status without patterns, under which no node runs; the target's tables get their new names; the bases; the status with
                     the new patterns and routes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import structlog

from changefeed.config.configuration import Configuration
from changefeed.config.tables.filter import Filter
from changefeed.errors import ConfigurationError, SluiceError
from changefeed.lifecycle import Sign
from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord
from changefeed.records.requests import Reroute
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId, TableKind, TableSchema, identified
from owner.background import Background
from owner.changefeed_sink import ChangefeedSink
from owner.ddl.stragglers import nameless
from owner.decision.state import published
from owner.etcd_view import OwnerView
from owner.etcd_writes import ChangefeedWriter
from owner.owner_memory import Lifecycles
from owner.starts.catalog_at_start import Beginning, Catalog, begin, check_names, tables_at
from owner.starts.target_renames import TargetRenames
from owner.starts.views import make_views, remake_views
from owner.tables import filter_change, route_change
from owner.tables.filter_change import FilterChange
from owner.tables.route_change import Place
from schema_store.store import SchemaStore
from sink.ddl import DropTables

_log = structlog.get_logger()


class TableStarts:
    """For the owner's thread."""

    def __init__(
        self,
        configuration: Configuration,
        source: Catalog,
        sink: ChangefeedSink,
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
        self._renames = TargetRenames(sink.open, writer, background)
        self._tables: tuple[
            Mapping[TableId, TableSchema], Mapping[Position, DdlRecord], Filter | None, Sequence[TableSchema]
        ] = ({}, {}, None, ())
        self._log = _log.bind(changefeed=configuration.id, epoch=writer.epoch)

    def begin(self, known: OwnerView, status: ChangefeedStatus) -> None:
        """For a changefeed without a checkpoint. Until it has one, its status shows why not."""
        lifecycle = self._lifecycles.after(self._lifecycles.commanded(known.info, status), Sign.TICK)
        if lifecycle.running:
            question = ("begin", known.info.version)
            try:
                beginning: Beginning | None = self._background.take(
                    question, lambda: self._beginning(known.info.resume_from)
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
        self._sink.claim(beginning.position, beginning.tables)
        if not beginning.copied:
            return beginning
        make_views(beginning.tables, self._configuration, self._sink.open)
        return replace(beginning, tables=self._to_copy(beginning.tables))

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
            ("tables", known.info.version), lambda: self._change(known, status, position, moving)
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
        found = filter_change.without_doubles(found, living)
        free, taken = filter_change.with_free_names(routes, records, found)
        if not status.follows(asked):
            check_names(routes, found)
        copied = {place.table.id for place in places if place.moves and place.table.kind is not TableKind.VIEW}
        change = filter_change.plan(
            patterns, position, known.bases, records, found, anew=free | copied, without_name=taken
        )
        if left := filter_change.abandoned_copies(patterns, living, free | copied):
            with closing(self._sink.open()) as sink:
                sink.apply(DropTables(names=left), sink.observe(left))
        remake_views(places, status.routes or routes, known.info.reroute, asked, self._sink.open)
        make_views(change.taken_in, asked, self._sink.open)
        return replace(change, taken_in=self._to_copy(change.taken_in))

    def _to_copy(self, tables: Sequence[TableSchema]) -> tuple[TableSchema, ...]:
        sizes = self._source.sizes([table.name for table in tables if table.kind is not TableKind.VIEW])
        return tuple(replace(table, copied=True, size=sizes.get(table.name)) for table in tables)
