"""`ddl_of_change`: an event of a change stream as a `DdlEvent`. Pure; the oplog's counterpart is `oplog.ddl_entry`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from changefeed.event import SHOWN_BY_STREAMS, DdlEvent, DdlType
from changefeed.table import SYSTEM_DATABASES, TableId, TableName, view_id
from source.ddl.ddl_description import check_names, describe, printable, shown, uuid_of, wall_ms_of
from source.ddl.resume_token import decode_token, position_of


def ddl_of_change(change: Mapping[str, Any]) -> DdlEvent | None:
    """None for DDL of the server itself: on system databases and `system.*` collections."""
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
    unexplained = DdlEvent(
        position=position_of(token),
        type=DdlType.UNKNOWN,
        db=printable(db),
        table=_printable(table),
        id=_id_of(change, token, table),
        renamed_to=_printable(TableName(to["db"], to["coll"]) if to else None),
        drop_target=uuid_of(stated.get("dropTarget")),
        wall_ms=wall_ms_of(change.get("wallTime")),
    )
    try:
        event = replace(unexplained, type=ddl_type, description=describe(ddl_type, stated))
        check_names(db, table, to)
    except Exception:  # noqa: BLE001 - whatever a definition holds concerns its table alone
        return replace(unexplained, description=shown(stated))
    return event


def _printable(table: TableName | None) -> TableName | None:
    return table and TableName(printable(table.db), printable(table.coll))


def _id_of(change: Mapping[str, Any], token: str, table: TableName | None) -> TableId | None:
    """A view has no UUID: its name is its id. The token of its event contains the UUID of `system.views`.

    So the token is used only if events have no UUID at all: before 6.0, where they have no `wallTime` and views are not shown.
    """
    if table is None:
        return None
    stated = uuid_of(change.get("collectionUUID"))
    if stated is None and "wallTime" not in change:
        stated = decode_token(token).table
    return stated or view_id(table)
