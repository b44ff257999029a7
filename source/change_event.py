"""From an event of a change stream to a `DdlEvent`. Pure; the oplog's counterpart is `oplog.ddl_entry`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from changefeed.document import EMPTY, Document
from changefeed.event import SHOWN_BY_STREAMS, DdlEvent, DdlType
from changefeed.table import SYSTEM_DATABASES, TableId, TableName, view_id
from source.index_spec import indexes_description, normalised_index
from source.resume_token import decode_token, position_of
from source.view_definition import created_view, is_timeseries, modified_view


def uuid_of(value: Any) -> TableId | None:
    """From a BSON UUID, however the driver decoded it."""
    if value is None or isinstance(value, bool):
        return None
    return TableId(value.hex() if isinstance(value, bytes) else value.hex)


def ddl_of_change(change: Mapping[str, Any]) -> DdlEvent | None:
    """None for what concerns the server itself: system databases, `system.*` collections."""
    if change["operationType"] not in SHOWN_BY_STREAMS:
        raise ValueError(f"{change['operationType']!r} is not a DDL event")
    ddl_type = DdlType(change["operationType"])
    token = change["_id"]["_data"]
    db = change["ns"]["db"]
    table = TableName(db, change["ns"]["coll"]) if "coll" in change["ns"] else None
    if db in SYSTEM_DATABASES or (table is not None and table.system):
        return None
    stated = change.get("operationDescription") or {}
    to = change.get("to") or stated.get("to")
    return DdlEvent(
        position=position_of(token),
        type=ddl_type,
        db=db,
        table=table,
        id=_id_of(change, token, table),
        renamed_to=TableName(to["db"], to["coll"]) if to else None,
        drop_target=uuid_of(stated.get("dropTarget")),
        description=describe(ddl_type, stated),
        wall_ms=wall_ms_of(change.get("wallTime")),
    )


def _id_of(change: Mapping[str, Any], token: str, table: TableName | None) -> TableId | None:
    """A view has no UUID: we name it by its name. The token of its event holds the UUID of `system.views`, so it is asked only
    where events say no UUID at all: before 6.0, which is also where they have no `wallTime` and views are not shown.
    """
    if table is None:
        return None
    stated = uuid_of(change.get("collectionUUID"))
    if stated is None and "wallTime" not in change:
        stated = decode_token(token).table
    return stated or view_id(table)


def describe(ddl_type: DdlType, stated: Mapping[str, Any]) -> Document:
    """The operation as `DdlEvent.description` wants it, from the server's words for it."""
    if not stated:
        return EMPTY
    match ddl_type:
        case DdlType.CREATE_INDEXES | DdlType.DROP_INDEXES:
            return indexes_description(stated["indexes"])
        case DdlType.CREATE:
            return Document.of(_created(stated))
        case DdlType.MODIFY if "viewOn" in stated and is_timeseries(stated):
            return Document.of(modified_view(stated))
        case DdlType.RENAME | DdlType.DROP | DdlType.DROP_DATABASE:
            return EMPTY
        case _:
            return Document.of(stated)


def _created(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Without `temp`: a server that starts drops temporary collections, and which of them become permanent is the source's affair."""
    if "viewOn" in stated:
        return created_view(stated)
    options = {name: value for name, value in stated.items() if name != "temp"}
    if "idIndex" in options:
        options["idIndex"] = normalised_index(options["idIndex"])
    return options


def wall_ms_of(wall: Any) -> int | None:
    return int(wall.timestamp() * 1000) if isinstance(wall, datetime) else None
