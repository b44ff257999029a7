"""`read_layout`: how a sharded cluster divides a table now, by its routers or its config servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from bson.binary import UUID_SUBTYPE, Binary

from changefeed.documents.document import Document
from changefeed.table import TableKind, TableSchema
from changefeed.table_layout import TableLayout, ZoneRange
from source.connection import Client
from source.errors import translated

_log = structlog.get_logger(__name__)


def read_layout(client: Client, schema: TableSchema) -> TableLayout | None:
    """None if the table is not sharded, or cannot be written through a router one row at a time: if it has a collation."""
    if schema.kind is not TableKind.COLLECTION:
        return None
    with translated(f"reading how the source shards {schema.name}"):
        entry = _entry(client, schema)
        if entry is None or entry.get("unsplittable"):
            return None
        if entry.get("defaultCollation"):
            _log.warning("table_with_a_collation_is_not_sharded", table=str(schema.name))
            return None
        chunks = _found(client, "chunks", {"uuid": entry["uuid"]}, {"min": 1})
        tags = _found(client, "tags", {"ns": entry["_id"]}, {"min": 1})
    zones = (ZoneRange(lower=Document.of(tag["min"]), upper=Document.of(tag["max"]), zone=tag["tag"]) for tag in tags)
    return TableLayout(
        key=Document.of(entry["key"]),
        unique=bool(entry.get("unique")),
        bounds=tuple(Document.of(chunk["min"]) for chunk in chunks[1:]),
        zones=tuple(zones),
    )


def _entry(client: Client, schema: TableSchema) -> Mapping[str, Any] | None:
    """By a UUID that it is known to have had; a resharding that nobody has heard of has given it another one, but no other name."""
    uuids = [Binary(bytes.fromhex(uuid), UUID_SUBTYPE) for uuid in (schema.id, *schema.uuids)]
    found = _found(client, "collections", {"$or": [{"uuid": {"$in": uuids}}, {"_id": str(schema.name)}]}, {"_id": 1})
    return next((entry for entry in found if entry["uuid"] in uuids), found[0] if found else None)


def _found(client: Client, coll: str, filter: Mapping[str, Any], sort: Mapping[str, int]) -> list[Mapping[str, Any]]:
    command = {"find": coll, "filter": filter, "sort": sort, "readConcern": {"level": "majority"}}
    return list(client["config"].cursor_command(command, read_preference=client.read_preference))
