"""`DownstreamDdl`: a source's DDL in the sink's names; `DdlApplier`: the protocol that applies it to a sink. Pure.

`downstream` is pure: it uses the routes and the filter to turn one `DdlEvent` into exactly one of the values below.

    at the source                                   downstream
    create                                          CreateTable
    createIndexes, dropIndexes, modify              CreateIndexes, DropIndexes, ModifyTable
    drop                                            DropTables, with one name
    dropDatabase                                    DropTables, with the tables of that database that are still replicated
    rename, both names inside the filter            RenameTable
    rename to a name outside                        DropTables: the table has left the filter
    rename from a name outside                      Skip: the table is copied as a new one; the table that it replaced is dropped
    rename between names with the same route        Skip
    shardCollection, reshard, refine                ShardTable
    exchange                                        RenameTable: the copy made beside takes the table's place
    enter                                           Skip; at a sink of messages BeginAgain: there is no beside, so the copy follows it
    enter, of a table that is made anew in place    ReplaceView; DropTables for a time series, whose copy follows

A table that is copied beside (`Beside`) has two tables downstream. Its DDLs concern the new one, under a name of Sluice's own; a drop
concerns both. A rename concerns the old one, if it is still there: the copy starts again anyway.

A worked example. The filter accepts `shop.*`, the route sends `shop.X` to `copy.X`, and the source reports

    rename shop.orders to archive.orders      DropTables(copy.orders)
    rename shop.new to shop.items, replacing  RenameTable(copy.new -> copy.items, replaces=True)
    dropDatabase shop                         DropTables(copy.items, ...), never the database `copy` itself

A downstream database is never dropped as a whole: it may contain collections that Sluice did not create, and a collection created
after the last check would be lost. The server removes a database with its last collection.

Routes may send several tables to one name (fan-in). A DDL that would remove the rows of the other tables is then not applied: a drop
is skipped with a note, and a rename from or to a shared name is refused, because the rows of the tables cannot be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, assert_never

from changefeed.documents.document import Document
from changefeed.errors import DdlUnsupported
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.printable import named
from changefeed.records.ddl import DdlRecord, Observation
from changefeed.table import TableId, TableKind, TableName, TableSchema, defined
from changefeed.table_layout import TableLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    """Creates a collection, view or time-series; `options` determine which."""

    name: TableName
    options: Document
    id: TableId | None = None
    """The table's own, where no record of a DDL tells it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateIndexes:
    name: TableName
    indexes: tuple[Document, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropIndexes:
    name: TableName
    indexes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifyTable:
    name: TableName
    changes: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTables:
    names: tuple[TableName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceView:
    """The view is there and like this, whatever it was before. It never takes the place of a collection."""

    name: TableName
    options: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameTable:
    """`replaces`: the rename at the source dropped the table that had the new name."""

    name: TableName
    to: TableName
    replaces: bool
    perhaps: bool = False
    """The table may be missing. Then only the table that it replaces is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTable:
    """`how` is one of the three sharding types; `description` is the one of the source's event.

    With a `layout` the table is new, and is divided like the source's. If it is sharded already, it stays as it is.
    """

    name: TableName
    how: DdlType
    description: Document
    layout: TableLayout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginAgain:
    """At a sink of messages: the table ends, and begins again with a copy. `skipped_from`: from there on nothing of its former life was sent."""

    name: TableName
    schema: TableSchema
    """What it is from there on. Said together with it: the copy may be interrupted before anything of it is there."""
    skipped_from: Position | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """The DDL needs no action downstream; the note tells an operator why."""

    note: str


SingleDdl: TypeAlias = (
    CreateTable
    | CreateIndexes
    | DropIndexes
    | ModifyTable
    | DropTables
    | ReplaceView
    | RenameTable
    | ShardTable
    | BeginAgain
    | Skip
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """One after the other. Each is applied exactly once."""

    parts: tuple[SingleDdl, ...]


DownstreamDdl: TypeAlias = SingleDdl | Together


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """`route` returns a table's downstream name, None outside the filter; `tables` are those replicated just before the DDL."""

    route: Callable[[TableName], TableName | None]
    tables: Mapping[TableId, TableName]
    beside: Mapping[TableName, TableName] = field(default_factory=dict)
    """The tables of the source that are copied beside, with the names of their copies downstream."""

    @classmethod
    def of(cls, route: Callable[[TableName], TableName | None], tables: Iterable[TableSchema]) -> Routing:
        """`tables`: as they are just before the DDL."""
        tables = list(tables)
        beside = {schema.name: schema.beside.name for schema in tables if schema.beside is not None}
        return cls(route=route, tables={schema.id: schema.name for schema in tables}, beside=beside)

    def sharing(self, name: TableName, *, apart_from: Iterable[TableName]) -> frozenset[TableName]:
        """Other tables of the source that have this name downstream."""
        apart = frozenset(apart_from)
        return frozenset(table for table in self.tables.values() if table not in apart and self.route(table) == name)


class DdlApplier(Protocol):
    """Applies each DDL to a sink exactly once, however often `apply` is called.

    The owner calls `observe(names_of(ddl))`, records the result with the DDL as `executing`, and only then calls `apply`. After
    a crash or a retryable error it calls `apply` again *with the recorded observation*: `apply` first compares the sink with it,
    and does only the missing part. It raises `DdlAmbiguous` when the sink is neither in the state before the DDL nor in the state after
    it, `DdlRefused` when the sink refuses the DDL, `DdlUnsupported` when the sink cannot express it.

    `apply` may take hours (an index build); it runs in a thread of its own.
    """

    def observe(self, names: Iterable[TableName]) -> Observation:
        """Where nothing is compared, nothing is seen."""
        return Observation(tables=dict.fromkeys(names))

    def apply(self, ddl: DownstreamDdl, before: Observation, record: DdlRecord | None = None) -> str:
        """Returns a note for the DDL's record; it is mostly empty. `record`: the DDL of the source, None for a step of a copy or a start."""
        ...

    def close(self) -> None:
        """Closes what it has opened."""
        return


def create_copy(schema: TableSchema, name: TableName, route: Callable[[TableName], TableName | None]) -> CreateTable:
    """The first step of a table's initial copy; rows written before it would create the table without its options."""
    routing = Routing(route=route, tables={})
    return CreateTable(name=name, options=_view_routed(schema.name, name, schema.options, routing), id=schema.id)


def shard_copy(name: TableName, layout: TableLayout) -> ShardTable:
    description = {"shardKey": layout.key.decode()} | ({"unique": True} if layout.unique else {})
    return ShardTable(name=name, how=DdlType.SHARD_COLLECTION, description=Document.of(description), layout=layout)


def names_of(ddl: DownstreamDdl) -> tuple[TableName, ...]:
    """The downstream names that a DDL reads or changes."""
    match ddl:
        case Skip():
            return ()
        case DropTables():
            return ddl.names
        case RenameTable():
            return ddl.name, ddl.to
        case Together():
            return tuple(dict.fromkeys(name for part in ddl.parts for name in names_of(part)))
        case _:
            return (ddl.name,)


def parts_of(ddl: DownstreamDdl, before: Observation) -> tuple[SingleDdl, ...]:
    """What is to be done to a sink that was like this before."""
    match ddl:
        case Together():
            return tuple(each for part in ddl.parts for each in parts_of(part, before))
        case RenameTable(perhaps=True) if before.tables.get(ddl.name) is None:
            return (DropTables(names=(ddl.to,)),) if ddl.replaces else ()
        case _:
            return (ddl,)


def downstream(event: DdlEvent, routing: Routing) -> DownstreamDdl:
    if event.table is None:
        return _drop_database(event.db, routing)
    if event.type is DdlType.RENAME:
        return _rename(event, routing)
    if event.table.system:
        return Skip(note=f"{event.table} is a system collection of the server")
    target = routing.route(event.table)
    if target is None:
        return Skip(note=f"{event.table} is outside the filter")
    if event.type not in (DdlType.DROP, DdlType.EXCHANGE):
        target = routing.beside.get(event.table, target)
    return _one_table(event, event.table, target, routing)


def dropped_instead(event: DdlEvent, routing: Routing) -> DownstreamDdl:
    """Instead of a rename: what has the old name is dropped, and so is a table that the rename replaces."""
    names = [name for name in (event.table, event.renamed_to if event.drop_target else None) if name is not None]
    drops = [_drop(name, target, routing) for name in names if (target := routing.route(name)) is not None]
    dropped = [name for drop in drops if isinstance(drop, DropTables) for name in drop.names]
    return DropTables(names=tuple(dropped)) if dropped else Skip(note="nothing of it is left downstream")


def _one_table(  # noqa: C901, PLR0911 - one case for each kind of DDL
    event: DdlEvent, table: TableName, target: TableName, routing: Routing
) -> DownstreamDdl:
    match event.type:
        case DdlType.CREATE:
            return CreateTable(name=target, options=_view_routed(table, target, event.description, routing))
        case DdlType.CREATE_INDEXES:
            return CreateIndexes(name=target, indexes=tuple(map(Document.of, _indexes(event))))
        case DdlType.DROP_INDEXES:
            return DropIndexes(name=target, indexes=tuple(str(index["name"]) for index in _indexes(event)))
        case DdlType.MODIFY:
            return ModifyTable(name=target, changes=_view_routed(table, target, event.description, routing))
        case DdlType.DROP:
            return _drop(table, target, routing)
        case DdlType.SHARD_COLLECTION | DdlType.RESHARD_COLLECTION | DdlType.REFINE_SHARD_KEY:
            return ShardTable(name=target, how=event.type, description=event.description)
        case DdlType.EXCHANGE:
            return _exchange(event, table, target, routing)
        case DdlType.ENTER:
            return _enter(event, table, target, routing)
        case DdlType.LEAVE | DdlType.NEW_UUID:
            return Skip(note="nothing changes downstream")
        case DdlType.RENAME | DdlType.DROP_DATABASE | DdlType.UNKNOWN:
            raise AssertionError(f"{event} is not about one table")
        case _:
            assert_never(event.type)


def _indexes(event: DdlEvent) -> list[dict[str, Any]]:
    return list(event.description.decode().get("indexes", []))


def _drop(table: TableName, target: TableName, routing: Routing) -> DropTables | Skip:
    others, copy = routing.sharing(target, apart_from=[table]), routing.beside.get(table)
    names = (*(() if others else (target,)), *((copy,) if copy else ()))
    if not names:
        return Skip(note=f"{target} also holds {named(sorted(others))}; the rows of {table} stay in it")
    return DropTables(names=names)


def _enter(
    event: DdlEvent, table: TableName, target: TableName, routing: Routing
) -> BeginAgain | DropTables | ReplaceView | Skip:
    said = event.description.decode()
    if "beside" in said:
        return Skip(note="nothing changes downstream")
    assert event.id is not None
    schema = defined(event.description, event.id, table, event.position)
    if "inPlace" in said and schema.kind is TableKind.VIEW:
        return ReplaceView(name=target, options=_view_routed(table, target, schema.options, routing))
    if "inPlace" in said:
        return DropTables(names=(target,))
    skipped = said.get("skippedFrom")
    return BeginAgain(name=target, schema=schema, skipped_from=Position.parse(skipped) if skipped else None)


def _exchange(event: DdlEvent, table: TableName, target: TableName, routing: Routing) -> RenameTable:
    if others := routing.sharing(target, apart_from=[table]):
        raise DdlUnsupported(
            f"{event}: {target} also holds the rows of {named(sorted(others))}, which would be lost; route every table to a name of its own"
        )
    return RenameTable(name=routing.beside[table], to=target, replaces=True)


def _drop_database(db: str, routing: Routing) -> DownstreamDdl:
    """One pass over all tables, however many are dropped."""
    doomed: set[TableName] = set()
    staying: set[TableName] = set()
    for table in routing.tables.values():
        target = routing.route(table)
        if target is not None:
            (doomed if table.db == db else staying).add(target)
            doomed |= {routing.beside[table]} if table.db == db and table in routing.beside else set()
    names = tuple(sorted(doomed - staying))
    return DropTables(names=names) if names else Skip(note=f"no table of {db} is left downstream")


def _rename(event: DdlEvent, routing: Routing) -> DownstreamDdl:
    old, new = event.table, event.renamed_to
    if old is None or new is None:
        raise AssertionError(f"{event} lacks a name")
    source = None if old.system else routing.route(old)
    target = None if new.system else routing.route(new)
    if source is not None and target is not None:
        return _rename_inside(event, (old, source), (new, target), routing)
    if source is not None:
        return _drop(old, source, routing)
    if target is None:
        return Skip(note=f"{old} and {new} are outside the filter")
    if event.drop_target is not None:
        return _drop(new, target, routing)
    return Skip(note=f"{new} came from outside the filter and is copied as a new table")


def _rename_inside(
    event: DdlEvent, old: tuple[TableName, TableName], new: tuple[TableName, TableName], routing: Routing
) -> DownstreamDdl:
    (old_name, source), (new_name, target) = old, new
    replaces = event.drop_target is not None
    if source == target and not replaces:
        return Skip(note=f"{old_name} and {new_name} are both {target} downstream")
    others = routing.sharing(source, apart_from=[old_name]) | routing.sharing(target, apart_from=[new_name])
    if others:
        raise DdlUnsupported(
            f"{event}: {source} or {target} also holds the rows of {named(sorted(others))}, which cannot be told apart from those of "
            f"{old_name}; route every table to a name of its own, or take renames of these tables out of the changefeed's events"
        )
    rename = RenameTable(name=source, to=target, replaces=replaces, perhaps=old_name in routing.beside)
    replaced = routing.beside.get(new_name) if replaces else None
    return rename if replaced is None else Together(parts=(rename, DropTables(names=(replaced,))))


def _view_routed(table: TableName, target: TableName, description: Document, routing: Routing) -> Document:
    """A view reads a table of its own database by name: that name is routed too.

    Names inside its pipeline ($lookup, $unionWith, $graphLookup) stay unchanged: a user who routes those tables to other names has
    to write the view at the target.
    """
    options = description.decode()
    if "viewOn" not in options:
        return description
    read = TableName(table.db, options["viewOn"])
    if read.coll.startswith("system.buckets."):
        raise DdlUnsupported(
            f"{table}: cannot create {target}: the source's event describes a time-series without its options"
        )
    routed = routing.route(read) or replace(read, db=target.db)
    if routed.db != target.db:
        raise DdlUnsupported(
            f"{table}: the view would be in {target.db} and read {routed}, but a view can read its own database only; "
            f"route {table} and {read} to the same database"
        )
    return Document.of(options | {"viewOn": routed.coll})
