"""`DdlClassifier`: what a DDL event of the source means for one changefeed: nothing, or a record with its scope. Pure.

The scope is what a DDL touches: the tables it changes (by id, at the source) and the names it changes (downstream). Ids say which rows
must wait. Names order DDLs that concern different ids under one name, such as the drop and the create of a re-created table.
Tables that routes map to a touched name are in the scope too.

    event                               tables                          names
    create shop.a                       those already routed to a name  shop_dr.a
    createIndexes, modify, drop ...     the table                       its name
    rename shop.a to shop.b             the table and a replaced one    both names
    rename into the filter              a replaced table                the new name; the table is copied as a new one
    rename out of the filter            the table                       the old name; it counts as a drop
    dropDatabase shop                   all remaining tables            all their names, and the whole database

Only replicated tables can be in a scope: a barrier never waits for a table that the filter leaves out. A view, which has no rows, and a
table that enters the filter are listed in `apart`: no node has them, and they only count for the order.

A create or a rename may bring a table under a name downstream that another table has, without a rule of the routes that asks for it. Such a DDL is
`taken`: it is recorded as refused, and its scope has no part in that name, so the table that has the name goes on. The other one is
*nameless* from there on: its later DDLs change its schema only.

    routes r1.* to r2.*, table r2.a        create r1.a                  taken; tables {}, apart {r1.a}, names {}
                                           rename x.b to r1.a           taken; tables {x.b}, names {x.b}: x.b stops there
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime

from changefeed.config.tables.filter import Disposition, Filter
from changefeed.config.tables.routes import Routes
from changefeed.documents.document import EMPTY
from changefeed.documents.row_key import key_text
from changefeed.errors import InvariantError, NameTaken, SluiceError, SourceUnsupported
from changefeed.event import NOT_FOLLOWED, SHARDING, DdlEvent, DdlType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, Scope
from changefeed.table import TableId, TableKind, TableName, TableSchema, view_id
from schema_store.definition import in_measurements, resharded
from schema_store.schema_base import NO_BASE, SchemaBase
from schema_store.versions import SchemaVersions

_MOST_SHOWN = 1000
"""Characters of a command in a message."""
ANEW = (
    "nothing of it was done, and its tables stand still here: leave them out (filter.tables) by `sluice changefeed update`, drop them at the target, and "
    "take them in again: then they are copied"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlClassifier:
    filter: Filter
    routes: Routes
    background_indexes: bool
    shard_keys: bool = True
    """Whether it matters by which key a table is sharded."""
    _names: TargetNames = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_names", TargetNames(self.routes))

    def enters(self, event: DdlEvent) -> bool:
        """Whether a rename brings a table into the filter. Only the source's catalog describes such a table."""
        renamed = event.type is DdlType.RENAME and self._wants(event.renamed_to)
        return renamed and not self._wants(event.table)

    def leaves(self, event: DdlEvent) -> bool:
        return event.renamed_to is not None and self._wants(event.table) and not self._wants(event.renamed_to)

    def _wants(self, name: TableName | None) -> bool:
        return name is not None and self.filter.wants_table(name)

    def having(self, target: TableName, position: Position, tables: SchemaVersions) -> frozenset[TableId]:
        """The tables with rows that the routes bring under this name downstream."""
        found = self._names.having([target], position, tables)
        return frozenset(schema.id for schema in found if schema.kind is not TableKind.VIEW)

    def classify(
        self, event: DdlEvent, tables: SchemaVersions, seen_at: datetime, nameless: AbstractSet[TableId] = frozenset()
    ) -> DdlRecord | None:
        """None: the event does not concern this changefeed. `nameless`: tables whose name another table has downstream."""
        disposition = self.filter.ddl(event)
        if disposition is None or (event.type in SHARDING and not self.shard_keys):
            return None
        if event.type is DdlType.UNKNOWN and event.table is None and not tables.in_database(event.db, event.position):
            return None
        _refuse_unknown(event)
        _refuse_new_identity(event)
        if self.leaves(event):
            event = replace(event, type=DdlType.DROP, renamed_to=None, drop_target=None)
        if _repeated(event, tables):
            return None
        if (of := _subject(event, tables)) is not None:
            event = in_measurements(event, of)
        touched = self._touched(event, tables)
        subject = _named_table(event, touched)
        without_name = subject in nameless
        names = self._targets(event, touched, nameless) if not without_name else frozenset()
        sharing = [schema for schema in self._names.having(names, event.position, tables) if schema.id not in nameless]
        taken = self._taken_by(event, subject, sharing) if not without_name else None
        if taken is not None:
            names = frozenset({self.routes.target(schema.name) for schema in touched if schema.id == subject})
            sharing = self._names.having(names, event.position, tables)
        apart = self._apart(event, (*touched, *sharing))
        return DdlRecord(
            event=event,
            scope=Scope(
                tables=frozenset(schema.id for schema in (*touched, *sharing) if schema.kind is not TableKind.VIEW),
                apart=apart | {subject} if taken is not None and not touched else apart,
                names=names,
                databases=frozenset(name.db for name in names) if event.type is DdlType.DROP_DATABASE else frozenset(),
                ended=self._ended(event, touched),
            ),
            disposition=Disposition.SCHEMA_ONLY if without_name else disposition,
            refused=self._refusal(event, taken, seen_at) if taken is not None else None,
            taken=taken is not None,
            note="its table has no name at the target" if without_name else "",
            background=self.background_indexes and disposition is Disposition.APPLY and _harmless_indexes(event),
            seen_at=seen_at,
        )

    def unexplained(self, event: DdlEvent, tables: SchemaVersions, error: SluiceError, seen_at: datetime) -> DdlRecord:
        """Of an event that does not fit what is known, or not into etcd: it changes nothing, and the tables that it names wait there for a user. If
        it names none, they are those of its database.
        """
        names = [name for name in (event.table, event.renamed_to) if name is not None and self._wants(name)]
        if event.table is None:
            names = [schema.name for schema in tables.in_database(event.db, event.position)]
        known = [tables.at(id, event.position) for id in (event.id, event.drop_target) if id is not None]
        touched = [schema for schema in (*known, *(tables.by_name(name, event.position) for name in names)) if schema]
        with_rows = frozenset(schema.id for schema in touched if schema.kind is not TableKind.VIEW)
        own = frozenset({event.id} if event.id is not None else ())
        return DdlRecord(
            event=replace(event, type=DdlType.UNKNOWN, description=EMPTY),
            scope=Scope(
                tables=with_rows,
                apart=(own | {schema.id for schema in touched}) - with_rows,
                names=frozenset(map(self.routes.target, names)),
            ),
            refused=replace(ErrorReport.of(error, seen_at), message=f"{error}; {ANEW}"),
            note=str(error),
            seen_at=seen_at,
        )

    def _targets(
        self, event: DdlEvent, touched: Iterable[TableSchema], nameless: AbstractSet[TableId]
    ) -> frozenset[TableName]:
        named = [schema for schema in touched if schema.id not in nameless]
        return frozenset(
            [
                *(self.routes.target(name) for name in _names(event, named)),
                *(schema.downstream(self.routes.target) for schema in named),
            ]
        )

    def _taken_by(self, event: DdlEvent, subject: TableId, sharing: Iterable[TableSchema]) -> TableSchema | None:
        """The table that has the new name downstream."""
        if event.type not in (DdlType.CREATE, DdlType.RENAME):
            return None
        new = event.renamed_to or event.table
        assert new is not None, "expected a create or a rename to name its table"
        target = self.routes.target(new)
        others = (schema for schema in sharing if schema.id not in (subject, event.drop_target))
        return next(
            (
                other
                for other in others
                if self.routes.target(other.name) == target and not self.routes.joins(new, other.name)
            ),
            None,
        )

    def _refusal(self, event: DdlEvent, other: TableSchema, seen_at: datetime) -> ErrorReport:
        error = NameTaken(
            f"{event}: {event.renamed_to or event.table} would be {self.routes.target(other.name)} at the target, as {other.name} is already, and no "
            "rule of routes asks for both under one name; nothing of it is written there. Drop or rename one of the two at the source, and pause and "
            "resume the changefeed; or give one another name (routes) or leave it out (filter.tables) by `sluice changefeed update`. Then it is "
            "copied as a new table"
        )
        return ErrorReport.of(error, seen_at)

    def _apart(self, event: DdlEvent, touched: Iterable[TableSchema]) -> frozenset[TableId]:
        views = {schema.id for schema in touched if schema.kind is TableKind.VIEW}
        return frozenset(views | ({event.id} if event.id is not None and self.enters(event) else set()))

    def _touched(self, event: DdlEvent, tables: SchemaVersions) -> list[TableSchema]:
        match event.type:
            case DdlType.CREATE:
                return []
            case DdlType.DROP_DATABASE:
                return list(tables.in_database(event.db, event.position))
            case DdlType.RENAME:
                replaced = tables.at(event.drop_target, event.position) if event.drop_target else None
                return [schema for schema in (_subject(event, tables), replaced) if schema is not None]
            case _:
                subject = _subject(event, tables)
                if subject is None:
                    raise InvariantError(
                        f"{event}: expected table {event.id} in the schema store at that position, found none"
                    )
                return [subject]

    @staticmethod
    def _ended(event: DdlEvent, touched: Iterable[TableSchema]) -> frozenset[TableId]:
        with_rows = {schema.id for schema in touched if schema.kind is not TableKind.VIEW}
        match event.type:
            case DdlType.DROP | DdlType.DROP_DATABASE:
                return frozenset(with_rows)
            case DdlType.RENAME:
                return frozenset(with_rows & {event.drop_target})
            case _:
                return frozenset()


def _names(event: DdlEvent, touched: Iterable[TableSchema]) -> Iterable[TableName]:
    """The names at the source. A name outside the filter may be among them; downstream it does not exist."""
    if event.type is DdlType.DROP_DATABASE:
        return [schema.name for schema in touched]
    return [name for name in (event.table, event.renamed_to) if name is not None]


def _refuse_unknown(event: DdlEvent) -> None:
    """An unknown command may have changed rows or tables of its database."""
    if event.type is not DdlType.UNKNOWN:
        return
    if (why := event.description.decode().get(NOT_FOLLOWED)) is not None:
        raise SourceUnsupported(f"{event.table or event.db} at {event.position} cannot be followed: {why}")
    raise SourceUnsupported(
        f"{event.table or event.db} at {event.position}: expected a command that this release can read, found "
        f"{key_text(event.description.raw)[:_MOST_SHOWN]}, which cannot be skipped"
    )


def _refuse_new_identity(event: DdlEvent) -> None:
    """From here on the table has another UUID at the source, and the event does not say which of its rows came before and which after."""
    if event.type is DdlType.RESHARD_COLLECTION and (new := event.description.decode().get("reshardUUID")) is not None:
        raise SourceUnsupported(
            f"{event}: the id of the table changed from {event.id} to {new}, which cannot be followed"
        )


def _repeated(event: DdlEvent, tables: SchemaVersions) -> bool:
    """Shards repeat a create and a drop, and dropDatabase follows the drops of its tables. A table that enters the filter has the shard key of the
    catalog, which may be read after a later DDL has given it.
    """
    match event.type:
        case DdlType.CREATE:
            return event.id is not None and tables.at(event.id, event.position) is not None
        case DdlType.DROP:
            return _subject(event, tables) is None
        case DdlType.DROP_DATABASE:
            return not any(True for _ in tables.in_database(event.db, event.position))
        case _ if event.type in SHARDING and (of := _subject(event, tables)) is not None:
            return of.shard_key is not None and of.shard_key == resharded(of, event).shard_key
        case _:
            return False


def _subject(event: DdlEvent, tables: SchemaVersions) -> TableSchema | None:
    if event.id is not None:
        return tables.at(event.id, event.position)
    return tables.by_name(event.table, event.position) if event.table else None


def _named_table(event: DdlEvent, touched: Iterable[TableSchema]) -> TableId:
    """The table that has the event's name. Empty: none has, or many."""
    if event.table is None:
        return TableId("")
    known = next((schema.id for schema in touched if schema.id != event.drop_target), None)
    return known or event.id or view_id(event.renamed_to or event.table)


def _harmless_indexes(event: DdlEvent) -> bool:
    """Plain or wildcard keys, and nothing that could refuse or remove a document: such indexes may be built while rows are applied.

    Text, 2d and 2dsphere indexes refuse values that they cannot read, unique ones refuse duplicates, TTL indexes delete.
    """
    if event.type is not DdlType.CREATE_INDEXES:
        return False
    return all(
        all(isinstance(direction, int | float) for direction in index["key"].values())
        and not index.get("unique")
        and not index.get("prepareUnique")
        and "expireAfterSeconds" not in index
        for index in event.description.decode()["indexes"]
    )


@dataclass(slots=True, eq=False)
class TargetNames:
    """Which tables have a name downstream, at a cost that does not grow with the number of tables.

    Most names have few possible origins, which the routes turned around give (`Routes.few_origins`). Only a rule that gathers tables, as
    `{from: "*.orders", to: all.orders}`, would need a look at all of them. For its tables there is an index, over the base of the schemas, which
    is the same object in most versions and which a new one replaces seldom. What has changed since is looked at table by table.

    For one thread. It remembers the index of the base that it saw last.
    """

    routes: Routes
    _base: SchemaBase = NO_BASE
    _gathered: dict[TableName, list[TableId]] = field(default_factory=dict)

    def having(self, names: Collection[TableName], position: Position, tables: SchemaVersions) -> list[TableSchema]:
        """The tables that have one of these names downstream."""
        few = {origin for name in names for origin in self.routes.few_origins(name)}
        found = {schema.id: schema for origin in few if (schema := tables.by_name(origin, position)) is not None}
        for table in self._perhaps_gathered(names, tables):
            schema = tables.at(table, position)
            if schema is not None and self.routes.target(schema.name) in names:
                found[schema.id] = schema
        return list(found.values())

    def _perhaps_gathered(self, names: Iterable[TableName], tables: SchemaVersions) -> Iterator[TableId]:
        gathering = [name for name in names if self.routes.origins(name) is None]
        if not gathering:
            return
        if tables.base is not self._base:
            self._base, self._gathered = tables.base, self._indexed(tables.base)
        for name in gathering:
            yield from self._gathered.get(name, ())
        yield from tables.changed

    def _indexed(self, base: SchemaBase) -> dict[TableName, list[TableId]]:
        found: dict[TableName, list[TableId]] = defaultdict(list)
        for schema in base.all():
            if self.routes.gathers(schema.name):
                found[self.routes.target(schema.name)].append(schema.id)
        return dict(found)
