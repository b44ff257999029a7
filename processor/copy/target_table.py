"""`Creation`: the target's table of an initial copy. It is created before the copy and gets its indexes after it.

If rows came first, the target would create the table without its options. While a table is copied it has no unique index but the one on
`_id`: its chunks are of different times, and a value that moved may be in two documents, one copied before and one after.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from changefeed.documents.document import Document
from changefeed.errors import DdlUnsupported, TargetOccupied
from changefeed.records.ddl import Observation, ObservedTable
from changefeed.table import TableName, TableSchema
from changefeed.table_layout import TableLayout
from sink.ddl import (
    CreateIndexes,
    CreateTable,
    DdlApplier,
    DownstreamDdl,
    DropIndexes,
    DropTables,
    create_copy,
    names_of,
    shard_copy,
)
from sink.sink import DocumentLoader


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """`shared`: the target's table may also hold other tables of the source, by the routes. `kept`: it may hold rows from before the changefeed, which stay."""

    schema: TableSchema
    name: TableName
    route: Callable[[TableName], TableName | None]
    layout: TableLayout | None = None
    """As which it is sharded at the target."""
    shared: bool = False
    kept: bool = False
    logged: bool = False
    """There is no table, only messages about one."""

    @property
    def filled_in_place(self) -> bool:
        """It can be neither emptied nor cleared. What an earlier attempt left of a deleted document is deleted by the replay of all changes."""
        return self.shared or self.kept or self.logged

    @property
    def create(self) -> CreateTable:
        return create_copy(self.schema, self.name, self.route)

    @property
    def bucketed(self) -> bool:
        return "timeseries" in self.create.options.decode()


def prepare(creation: Creation, ddl: DdlApplier, loader: DocumentLoader, before: Observation, *, ours: bool) -> None:
    """Creates the target's table before a copy. `ours`: what the target holds may go, since a copy of this table wrote it or the user said so.

    A table that a user created beforehand, for example to shard it differently, is kept if it is empty.
    """
    if creation.filled_in_place:
        _create_in_place(creation, ddl, before)
    elif ours:
        make_anew(creation, ddl)
    else:
        _create_if_empty(creation, ddl, loader, before)


def _create_if_empty(creation: Creation, ddl: DdlApplier, loader: DocumentLoader, before: Observation) -> None:
    """One observation serves all steps, and many tables: each waits for the majority. Buckets may be left without the time series that they
    belong to.
    """
    present = before.tables.get(creation.name)
    if (present is not None or creation.bucketed) and not loader.empty():
        raise TargetOccupied(
            f"{creation.name}: expected no documents at the target before its initial copy, found some; drop the table "
            f"there, route it to another name, say on_occupied: drop or keep, or start the changefeed with --start now if the target already "
            f"has the source's data"
        )
    ddl.apply(creation.create, before)
    _shard(creation, ddl)
    if present is not None:
        _drop_unique_indexes(creation, present, ddl)


def make_anew(creation: Creation, ddl: DdlApplier) -> None:
    """Creates the table empty and without indexes, whatever the target held. It can be repeated after an interruption at any point."""
    if creation.logged:
        return
    if creation.shared:
        raise DdlUnsupported(
            f"{creation.name}: may hold the rows of several tables, one of which has to be copied again; route every table to "
            f"a name of its own, or create the changefeed again"
        )
    _make_anew(creation, ddl)


def make_empty(creation: Creation, ddl: DdlApplier, others: Collection[TableName] = ()) -> None:
    """Creates the table empty and with its indexes, as a DDL requires it. `others`: the tables whose rows it has, too."""
    if creation.logged:
        return
    if others:
        raise DdlUnsupported(
            f"{creation.name}: a DDL needs it without the rows of a table that is being copied, and it also holds those of "
            f"{', '.join(map(str, sorted(others)))}; route every table to a name of its own, or create the changefeed again"
        )
    _make_anew(creation, ddl)
    build_indexes(creation, ddl)


def _make_anew(creation: Creation, ddl: DdlApplier) -> None:
    if creation.kept:
        raise DdlUnsupported(
            f"{creation.name}: has to be created anew, but with on_occupied: keep it may hold rows from before the changefeed; drop them and "
            f"the table yourself and create the changefeed again with on_occupied: drop, or leave the table out"
        )
    _do(DropTables(names=(creation.name,)), ddl)
    _do(creation.create, ddl)
    _shard(creation, ddl)


def build_indexes(creation: Creation, ddl: DdlApplier) -> None:
    """Harmless when the indexes exist; takes as long as the target takes to read its table."""
    if creation.schema.indexes:
        _do(CreateIndexes(name=creation.name, indexes=creation.schema.indexes), ddl)


def _create_in_place(creation: Creation, ddl: DdlApplier, before: Observation) -> None:
    """A table with rows is not sharded: it has no index for it yet."""
    ddl.apply(creation.create, before)
    if before.tables.get(creation.name) is None:
        _shard(creation, ddl)


def _shard(creation: Creation, ddl: DdlApplier) -> None:
    if creation.layout is not None:
        if (index := _key_index(creation.schema, creation.layout)) is not None:
            _do(CreateIndexes(name=creation.name, indexes=(index,)), ddl)
        _do(shard_copy(creation.name, creation.layout), ddl)


def _drop_unique_indexes(creation: Creation, present: ObservedTable, ddl: DdlApplier) -> None:
    indexes = [index.decode() for index in present.indexes]
    kept = creation.layout.key.decode() if creation.layout is not None else {}
    unique = tuple(
        str(index["name"])
        for index in indexes
        if index.get("unique") and not _of_id(index) and list(index["key"].items()) != list(kept.items())
    )
    if unique:
        _do(DropIndexes(name=creation.name, indexes=unique), ddl)


def has_all_indexes(schema: TableSchema) -> bool:
    """Whether the target's table has all of its indexes once it is created: none but the one on `_id`."""
    return all(_of_id(index.decode()) for index in schema.indexes)


def _of_id(index: dict[str, object]) -> bool:
    return index["key"] == {"_id": 1} or "clustered" in index


def _key_index(schema: TableSchema, layout: TableLayout) -> Document | None:
    """The source's index of the shard key: without it the target would make one with a name of its own."""
    key = list(layout.key.decode().items())
    for index in schema.indexes:
        definition = index.decode()
        partial = {"partialFilterExpression", "sparse"} & definition.keys()
        if list(definition["key"].items())[: len(key)] == key and not partial and not _of_id(definition):
            return index
    return None


def _do(what: DownstreamDdl, ddl: DdlApplier) -> None:
    ddl.apply(what, ddl.observe(names_of(what)))
