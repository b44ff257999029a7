"""`dead_letter`: the document that stands in the dead-letter collection for a change that the target will not take. Pure."""

from __future__ import annotations

from typing import Any

from bson.raw_bson import RawBSONDocument

from changefeed.documents.key_text import key_text
from sink.row import RowChange

_MOST_BYTES = 12 << 20


def dead_letter(change: RowChange, said: str) -> dict[str, Any]:
    """The event's documents stand in it as BSON bytes: what one collection refuses, another may refuse too."""
    event: dict[str, Any] = {"type": change.type.value}
    if len(change.key) + change.size <= _MOST_BYTES:
        event |= {"document": change.document, "update": change.update}
    return {
        "_id": f"{change.table.id}/{change.position}",
        "table": str(change.table.source),
        "position": str(change.position),
        "key": RawBSONDocument(change.key) if len(change.key) <= _MOST_BYTES else key_text(change.key),
        "event": event,
        "error": said,
    }
