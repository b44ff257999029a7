"""`ddls_of_entry`: an entry of the oplog as the `DdlEvent`s that a change stream with expanded events would show. Pure.

    entry                                              DDL
    create, also inside a transaction's applyOps       create
    createIndexes (an empty collection), commitIndexBuild   createIndexes: a build counts when it commits
    dropIndexes, with the specification in o2          dropIndexes
    collMod                                            modify
    drop, renameCollection, dropDatabase               drop, rename, dropDatabase
    insert, update, delete in db.system.views          create, modify, drop of a view
    drop of db.system.views                            drop of it: the owner knows the views (owner/decision/recording.py)
    any of the commands about db.system.buckets.x      the same of the time series x, whose view shows nothing more

A large transaction is a chain of applyOps entries, each pointing to the one before by `prevOpTime`; a prepared one ends
in `commitTransaction`. Its operations happen at the time of the entry that ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import ALL_VIEWS, SYSTEM_DATABASES, TableId, TableName, view_id
from source.ddl_description import (
    check_names,
    created_view,
    describe,
    is_timeseries,
    modified_view,
    printable,
    shown,
    uuid_of,
    wall_ms_of,
)
from source.oplog.row_entry import place
from source.resume_token import oplog_ddl_token

Entry = Mapping[str, Any]

_NO_DDL = frozenset(
    {
        "abortIndexBuild",
        "abortTransaction",
        "applyOps",
        "commitTransaction",
        "createDatabaseMetadata",
        "createGlobalIndex",
        "dbCheck",
        "dropDatabaseMetadata",
        "dropGlobalIndex",
        "dropIdent",
        "modifyCollectionShardingIndexCatalog",
        "setAllowChunkOperations",
        "setMultikeyMetadata",
        "startIndexBuild",
        "updateCollectionMetadata",
    }
)
"""If one of these concerns a table of a user, other entries show the change too."""
_OF_BUCKETS = frozenset({"validator", "clusteredIndex"})
"""The server itself gives them to the collection of the buckets."""
_TABLE_COMMANDS = {
    "create": DdlType.CREATE,
    "createIndexes": DdlType.CREATE_INDEXES,
    "commitIndexBuild": DdlType.CREATE_INDEXES,
    "dropIndexes": DdlType.DROP_INDEXES,
    "deleteIndexes": DdlType.DROP_INDEXES,
    "collMod": DdlType.MODIFY,
    "drop": DdlType.DROP,
}


def ends_transaction(entry: Entry) -> bool:
    """Whether the operations of a chain take effect with this entry."""
    o = entry["o"]
    return "commitTransaction" in o or ("applyOps" in o and not o.get("partialTxn") and not o.get("prepare"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """How DDLs of the oplog are told. `token`: from the time, the number among the operations of that time, and the number among the DDLs.
    `buckets`: a time series is the collection of its buckets; otherwise it is a view, as change streams show it.
    """

    token: Callable[[ClusterTime, int, int], str]
    buckets: bool


WITH_ROWS = Telling(token=lambda _, operation, __: place(operation), buckets=True)
"""With places of the oplog capture: among the rows of the same transaction."""

BEFORE_ROWS = Telling(token=lambda ts, _, ddl: oplog_ddl_token(ts, ddl), buckets=False)
"""With resume tokens that sort before those of the rows of the same time, for changefeeds that read their rows by change streams."""

OF_SHARDS = Telling(token=WITH_ROWS.token, buckets=False)


def ddls_of_entry(entry: Entry, earlier: Iterable[Entry] = (), telling: Telling = WITH_ROWS) -> tuple[DdlEvent, ...]:
    """`earlier` are the earlier entries of the same transaction, in order."""
    time = ClusterTime.from_bson(entry["ts"])
    wall_ms = wall_ms_of(entry.get("wall"))
    operations = _operations(entry, earlier)
    events: list[DdlEvent] = []
    for number, operation in enumerate(operations):
        position = Position(time, telling.token(time, number, len(events)))
        try:
            event = _ddl_of(operation, position, telling)
            if event is not None:
                check_names(event.db, event.table, event.renamed_to)
        except Exception:  # noqa: BLE001 - whatever a definition holds concerns its table alone
            event = _unknown(operation, position)
        if event is not None:
            events.append(replace(event, wall_ms=wall_ms))
    return tuple(events)


def _operations(entry: Entry, earlier: Iterable[Entry]) -> Iterator[Entry]:
    o = entry["o"]
    if entry["op"] == "c" and ("applyOps" in o or "commitTransaction" in o):
        if ends_transaction(entry):
            for part in chain(earlier, (entry,)):
                yield from _applied(part)
        return
    yield entry


def _applied(entry: Entry) -> Iterator[Entry]:
    for operation in entry["o"].get("applyOps", ()):
        if operation["op"] == "c" and "applyOps" in operation["o"]:
            yield from _applied(operation)
        else:
            yield operation


def _ddl_of(operation: Entry, position: Position, telling: Telling) -> DdlEvent | None:
    db, _, coll = operation["ns"].partition(".")
    if db in SYSTEM_DATABASES:
        return None
    if coll == ALL_VIEWS:
        return _view_ddl(operation, position, telling)
    if operation["op"] != "c":
        return None
    match next(iter(operation["o"])):
        case "dropDatabase":
            return DdlEvent(position=position, type=DdlType.DROP_DATABASE, db=db)
        case "renameCollection":
            return _rename(operation, position, telling)
        case command:
            return _table_ddl(operation, command, position, telling)


def _told(name: TableName, telling: Telling) -> TableName:
    return name.logical if telling.buckets else name


def _table_ddl(operation: Entry, command: str, position: Position, telling: Telling) -> DdlEvent | None:
    if command in _NO_DDL:
        return None
    if command not in _TABLE_COMMANDS:
        return _unknown(operation, position)
    named = TableName(operation["ns"].partition(".")[0], operation["o"][command])
    table = _told(named, telling)
    all_views = command == "drop" and table.coll == ALL_VIEWS
    if (table.system and not all_views) or (
        named.in_buckets and command == "create" and "timeseries" not in operation["o"]
    ):
        return None
    ddl_type = _TABLE_COMMANDS[command]
    return DdlEvent(
        position=position,
        type=ddl_type,
        db=table.db,
        table=table,
        id=_id_of(operation, table),
        description=describe(ddl_type, _stated(operation, ddl_type, command)),
    )


def _unknown(operation: Entry, position: Position) -> DdlEvent | None:
    """A command or a definition of a view that this release cannot explain. It concerns the table that it names, or its whole database if it names none."""
    db, _, coll = printable(operation["ns"]).partition(".")
    command, about = next(iter(operation["o"].items()), ("", None))
    table, to = None, None
    if coll == ALL_VIEWS:
        table = _named((operation.get("o2") or operation["o"]).get("_id"))
        if table is None or table.db != db:
            return None
    elif command == "renameCollection":
        table, to = (_named(operation["o"].get(end)) for end in (command, "to"))
    elif isinstance(about, str) and about:
        table = TableName(db, printable(about))
    if table is not None and table.system:
        return None
    return DdlEvent(
        position=position,
        type=DdlType.UNKNOWN,
        db=db,
        table=table,
        id=view_id(table) if coll == ALL_VIEWS and table else uuid_of(operation.get("ui")),
        renamed_to=to,
        description=shown(operation["o"]),
    )


def _id_of(operation: Entry, table: TableName) -> TableId:
    return uuid_of(operation.get("ui")) or view_id(table)


def _rename(operation: Entry, position: Position, telling: Telling) -> DdlEvent | None:
    o = operation["o"]
    table, to = (_told(TableName.parse(o[end]), telling) for end in ("renameCollection", "to"))
    if table.system:
        return None
    return DdlEvent(
        position=position,
        type=DdlType.RENAME,
        db=table.db,
        table=table,
        id=_id_of(operation, table),
        renamed_to=to,
        drop_target=uuid_of(o.get("dropTarget")),
    )


def _stated(operation: Entry, ddl_type: DdlType, command: str) -> dict[str, Any]:
    """The `operationDescription` that a change stream would show. The options of buckets are those of the time series."""
    o = {name: value for name, value in operation["o"].items() if name != command}
    if ddl_type is DdlType.CREATE and "timeseries" in o:
        return {name: value for name, value in o.items() if name not in _OF_BUCKETS}
    if ddl_type is DdlType.DROP and TableName.parse(f"_.{operation['o'][command]}").in_buckets:
        return {"timeseries": {}}  # of a table that nothing else is known of (schema_store/rewind.py)
    if ddl_type is DdlType.CREATE_INDEXES:
        return {"indexes": o.get("indexes", [o])}
    if ddl_type is DdlType.DROP_INDEXES:
        return {"indexes": [operation.get("o2") or {"name": o["index"]}]}
    return o


def _named(written: Any) -> TableName | None:
    """None for what names no table. A user may have written it into the definitions of views, which the server checks late."""
    try:
        return TableName.parse(printable(written)) if isinstance(written, str) else None
    except ValueError:
        return None


def _view_ddl(operation: Entry, position: Position, telling: Telling) -> DdlEvent | None:
    if telling.buckets and is_timeseries(operation["o"]):
        return None
    match operation["op"]:
        case "i":
            ddl_type, definition = DdlType.CREATE, created_view(operation["o"])
        case "u":
            ddl_type, definition = DdlType.MODIFY, modified_view(operation["o"])
        case "d":
            ddl_type, definition = DdlType.DROP, {}
        case _:
            return None
    view = _named((operation.get("o2") or operation["o"])["_id"])
    if view is None or view.db != operation["ns"].partition(".")[0]:
        return None
    return DdlEvent(
        position=position,
        type=ddl_type,
        db=view.db,
        table=view,
        id=view_id(view),
        description=Document.of(definition),
    )
