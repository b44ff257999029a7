"""The DDL history recorded from a real MongoDB is applied to the target. Each DDL is applied twice, as after a crash before its record was done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bson import json_util
from pymongo import MongoClient

from changefeed.documents.document import Document
from changefeed.event import DdlEvent, DdlType
from changefeed.table import ALL_VIEWS, TableId, TableName
from sink.ddl import CreateIndexes, DownstreamDdl, DropTables, Routing, downstream, names_of
from sink.mongodb.connection import connect
from sink.mongodb.ddl.ddl_applier import MongoDdlApplier
from source.oplog.ddl_entry import ddls_of_entry

RECORDED = Path(__file__).parents[4] / "fixtures" / "mongodb-4.3" / "replica-set-oplog.jsonl"


def history() -> list[DdlEvent]:
    """Without the drops of `system.views`, of databases that had no view any more: the owner makes nothing of them."""
    entries = [json_util.loads(line) for line in RECORDED.read_text().splitlines()]
    events = (event for entry in entries for event in ddls_of_entry(entry))
    return [event for event in events if event.table is None or event.table.coll != ALL_VIEWS]


def without_unsupported_indexes(ddl: DownstreamDdl) -> DownstreamDdl:
    """The development server supports neither text nor hashed indexes."""
    if not isinstance(ddl, CreateIndexes):
        return ddl
    kept = [index for index in ddl.indexes if not {"text", "hashed"} & set(_ways(index))]
    return CreateIndexes(name=ddl.name, indexes=tuple(kept))


def _ways(index: Document) -> list[str]:
    return [str(way) for way in index.decode()["key"].values()]


class Names:
    """The source's tables by id, as the schema store holds them."""

    def __init__(self) -> None:
        self.tables: dict[TableId, TableName] = {}

    def follow(self, event: DdlEvent) -> None:
        if event.type is DdlType.DROP_DATABASE:
            self.tables = {table: name for table, name in self.tables.items() if name.db != event.db}
            return
        assert event.id is not None
        assert event.table is not None
        if event.drop_target is not None:
            del self.tables[event.drop_target]
        if event.type is DdlType.DROP:
            del self.tables[event.id]
        elif event.type in (DdlType.CREATE, DdlType.RENAME):
            self.tables[event.id] = event.renamed_to or event.table


def test_the_recorded_history_leaves_what_the_source_had_at_every_point(
    target_uri: str, target_client: MongoClient[dict[str, Any]], fresh_database: Callable[[], str]
) -> None:
    named = [name for event in history() for name in (event.table, event.renamed_to) if name]
    databases = {db: fresh_database() for db in {name.db for name in named}}

    def route(table: TableName) -> TableName:
        return TableName(databases[table.db], table.coll)

    names = Names()
    with connect(target_uri) as client:
        applier = MongoDdlApplier(client, permit=lambda: 600.0)
        for event in history():
            ddl = without_unsupported_indexes(downstream(event, Routing(route=route, tables=names.tables)))
            before = applier.observe(names_of(ddl))
            applier.apply(ddl, before)
            applier.apply(ddl, before)
            names.follow(event)
            expected = {route(name) for name in names.tables.values()}
            found = {
                TableName(db, coll)
                for db in databases.values()
                for coll in target_client[db].list_collection_names()
                if coll != "system.views"
            }
            assert found == expected, event


def test_no_recorded_drop_of_a_database_finds_tables_left_to_drop() -> None:
    """A real source reports the drop of each collection first."""
    names = Names()
    left: list[TableName] = []
    for event in history():
        if event.type is DdlType.DROP_DATABASE:
            ddl = downstream(event, Routing(route=lambda table: table, tables=names.tables))
            left += ddl.names if isinstance(ddl, DropTables) else []
        names.follow(event)
    assert left == []
