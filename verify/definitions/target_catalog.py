"""`read_target`: the tables of the target. It may be any deployment, even a standalone server, so its oplog is not read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo.errors import OperationFailure

from changefeed.documents.document import Document
from changefeed.errors import SinkRefused
from changefeed.records.ddl import ObservedTable
from changefeed.table import SYSTEM_DATABASES, TableName
from sink.mongodb.connection import Client
from sink.mongodb.ddl.ddl_commands import NAMESPACE_NOT_FOUND
from sink.mongodb.errors import translated

_THREADS = 8
_OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(
    dict, tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_NOT_ABOUT_THE_TABLE = frozenset({"temp"})


def read_target(client: Client, wanted: Callable[[TableName], bool]) -> dict[TableName, ObservedTable]:
    with (
        translated("reading the catalog of the target", SinkRefused),
        ThreadPoolExecutor(_THREADS, "target") as threads,
    ):
        databases = [db for db in client.list_database_names() if db not in SYSTEM_DATABASES]
        listed = [
            entry for entries in threads.map(lambda db: list(_listed(client, db)), databases) for entry in entries
        ]
        chosen = [(name, info) for name, info in listed if wanted(name)]
        tables = threads.map(lambda entry: _table(client, *entry), chosen)
        return {name: table for (name, _), table in zip(chosen, tables, strict=True)}


def _listed(client: Client, db: str) -> Iterator[tuple[TableName, Mapping[str, Any]]]:
    for info in client[db].cursor_command("listCollections", codec_options=_OPTIONS):
        name = TableName(db, info["name"])
        if not name.system:
            yield name, info


def _table(client: Client, name: TableName, info: Mapping[str, Any]) -> ObservedTable:
    options = {option: value for option, value in info.get("options", {}).items() if option not in _NOT_ABOUT_THE_TABLE}
    indexes = () if info.get("type") == "view" else _indexes(client, name)
    return ObservedTable(uuid=None, options=Document.of(options), indexes=indexes)


def _indexes(client: Client, name: TableName) -> tuple[Document, ...]:
    try:
        listed = client[name.db].cursor_command("listIndexes", name.coll, codec_options=_OPTIONS)
        return tuple(Document.of(index) for index in listed)
    except OperationFailure as error:
        if error.code != NAMESPACE_NOT_FOUND:
            raise
        return ()
