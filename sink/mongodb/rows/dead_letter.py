"""`dead_letter`: the document in the dead-letter collection for a change that the target refuses. Pure."""

from __future__ import annotations

from typing import Any

from bson.raw_bson import RawBSONDocument

from changefeed.documents.key_text import key_text
from sink.row import RowChange

_MOST_BYTES = 12 << 20


def dead_letter(change: RowChange, said: str) -> dict[str, Any]:
    """It contains the event's documents as BSON bytes: the dead-letter collection could refuse the documents, too."""
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
