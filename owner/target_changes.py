"""`TargetRenames`, `make_views`, `remake_views`: what a start and changed routes do at the target, and which copies they drop there.

Views have no rows, so no node gets them. They are created before a beginning is recorded: a restarted owner finds them already created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace

from changefeed.config.configuration import Configuration
from changefeed.config.tables.filter import Filter
from changefeed.config.tables.routes import Routes
from changefeed.errors import DdlAmbiguous, DdlRefused, DdlUnsupported, SluiceError
from changefeed.records.ddl import DdlRecord, Observation, TargetRename
from changefeed.records.requests import Reroute
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId, TableKind, TableName, TableSchema
from coordination import failpoint
from owner.background import Background
from owner.etcd_view import OwnerView
from owner.etcd_writes import ChangefeedWriter
from owner.tables.route_change import Place, ready
from schema_store.store import SchemaStore
from sink.ddl import CreateTable, DdlApplier, DropTables, RenameTable, create_copy, names_of

_MOST = 1000
"""In one step."""
_THREADS = 8

_Names = tuple[TableName, TableName]


@dataclass(frozen=True, slots=True)
class _Renamed:
    done: tuple[TableName, ...]
    refused: Mapping[TableName, DdlRefused]


class TargetRenames:
    """Renames the target's tables for changed routes, each exactly once, while nothing runs. For the owner's thread.

    Each call of `go_on` takes one step, and etcd is the only memory between them:

        observe    the old and the new names at the target                          nothing has happened: it is observed again
        record     `rename/<name>` with the observation                             the rename compares the target with it
        rename     guarded by the UUIDs of the observation                          found as done, and not repeated
        done       in the record. The tables that wait for the name come next       not renamed again, whatever has its old name now

    The third column: why a crash just after it loses nothing. The status with the new routes deletes all records, in one transaction.
    """

    def __init__(self, open_sink: Callable[[], DdlApplier], writer: ChangefeedWriter, background: Background) -> None:
        self._open_sink = open_sink
        self._writer = writer
        self._background = background

    def go_on(self, known: OwnerView, status: ChangefeedStatus, places: Sequence[Place]) -> bool:
        """Returns whether all are done. A rename that an earlier change of the routes has recorded is carried out in any case."""
        version = known.info.version
        left = {name: rename for name, rename in known.renames.items() if not rename.done}
        if left:
            renamed: _Renamed | None = self._background.take(
                "rename", lambda: self._rename(left), about=(version, *left)
            )
            if renamed is not None:
                self._record(left, renamed)
            return False
        next_ones = dict(sorted(ready(places, left).items())[:_MOST])
        if not next_ones:
            return True
        if status.tables != ():
            self._writer.mark_changing(replace(status, tables=()))
            return False
        seen: dict[TableName, TargetRename] | None = self._background.take(
            "observe", lambda: self._observe(next_ones), about=(version, *next_ones)
        )
        if seen is not None:
            self._writer.renames(seen)
            failpoint.reach("target_renames_recorded")
        return False

    def _record(self, left: Mapping[TableName, TargetRename], renamed: _Renamed) -> None:
        """What the target refused is not recorded any more: it is observed again when the user has mended the target."""
        done = {name: replace(left[name], done=True) for name in renamed.done}
        self._writer.renames({**done, **dict.fromkeys(renamed.refused)})
        failpoint.reach("target_renames_done")
        for error in renamed.refused.values():
            raise error

    def _observe(self, names: Mapping[TableName, _Names]) -> dict[TableName, TargetRename]:
        with closing(self._open_sink()) as sink:
            seen = sink.observe(dict.fromkeys(name for pair in names.values() for name in pair)).tables
        return {
            origin: TargetRename(name=old, to=new, before=Observation(tables={old: seen[old], new: seen[new]}))
            for origin, (old, new) in names.items()
        }

    def _rename(self, left: Mapping[TableName, TargetRename]) -> _Renamed:
        """Raises what may pass, and what nobody knows: the next step begins with the same records."""
        with closing(self._open_sink()) as sink, ThreadPoolExecutor(_THREADS, "renames") as threads:
            errors = dict(zip(left, threads.map(lambda rename: _apply(sink, rename), left.values()), strict=True))
        for error in errors.values():
            if error is not None and (not isinstance(error, DdlRefused) or isinstance(error, DdlAmbiguous)):
                raise error
        refused = {name: error for name, error in errors.items() if isinstance(error, DdlRefused)}
        return _Renamed(tuple(name for name in errors if name not in refused), refused)


def _apply(sink: DdlApplier, rename: TargetRename) -> SluiceError | None:
    if not any(rename.before.tables.values()):
        return None  # the target has had no row of the table yet
    try:
        sink.apply(RenameTable(name=rename.name, to=rename.to, replaces=False), rename.before)
    except SluiceError as error:
        return error
    failpoint.reach("target_renamed", rename.name.coll)
    return None


def make_views(
    tables: Iterable[TableSchema], configuration: Configuration, open_sink: Callable[[], DdlApplier]
) -> None:
    """Create the source's views downstream, where tables begin with a copy. Takes a while. An existing view with another definition is an error."""
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
    """Give views their new names, or those of the tables that they read. May be repeated: a view has no rows. With `copy` a view of another name stays, as the tables of the old names do."""
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


def unfinished_copies(bases: Iterable[TableSchema], records: Iterable[DdlRecord]) -> tuple[TableName, ...]:
    """Return the names at the target of the copies that stand beside tables, also of those whose DDL is not done: it may have been applied."""
    known = list(records)
    versions = SchemaStore.from_records(bases, known).versions
    tip = versions.apply_all(record.event for record in known if record.open)
    copies = {schema.beside.name for of in (versions, tip) for _, schema in of.living() if schema.beside is not None}
    return tuple(sorted(copies))


def abandoned_copies(
    filter: Filter, living: Iterable[TableSchema], anew: AbstractSet[TableId]
) -> tuple[TableName, ...]:
    """Return the names at the target of the copies that will never take a table's place. To be dropped first: nothing is known of them later."""
    return tuple(
        schema.beside.name
        for schema in living
        if schema.beside is not None and (schema.id in anew or not filter.wants_table(schema.name))
    )


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

    return create_copy(view, routes.target(view.name), route)
