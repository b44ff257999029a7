"""`RowFilter`: which row events of a stream belong to a changefeed. Pure, and called for each event.

The source's server leaves out what is cheap for it (`source.stream.filter_match`). The rest is decided here: by the bytes of the event's
type and namespace, and by its documents only where the filter has conditions on them. The schema store need not know tables that the
filter does not want, so the filter is asked before the gate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from changefeed.config.tables.filter import Filter, TableFilter
from changefeed.errors import SourceUnsupported
from changefeed.event import RowType
from changefeed.table import TableName
from source.oplog.row_entry import UNKNOWN
from source.raw.row_header import Header
from source.stream.events.raw_event import table_name

READABLE: CodecOptions[RawBSONDocument] = CodecOptions(
    RawBSONDocument,
    tz_aware=True,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="surrogateescape",
)
"""Raw: the driver would decode `{$ref, $id}` to a DBRef, in which no path is found."""
_MOST_NAMES = 100_000
_NOTHING: frozenset[bytes] = frozenset()
_KNOWN = frozenset(type_.value.encode() for type_ in RowType)


def _insert_of(document: bytes) -> Mapping[str, Any]:
    raw = RawBSONDocument(document, READABLE)
    return {"documentKey": {"_id": raw.get("_id")}, "fullDocument": raw}


class RowFilter:
    """The result for a name is cached, so that an event costs one dictionary lookup."""

    def __init__(self, filter_: Filter) -> None:
        self._filter = filter_
        self._types: dict[bytes, frozenset[bytes]] = {}
        self._conditions: dict[bytes, TableFilter] = {}
        """Only the names that have conditions."""

    def wants(self, header: Header) -> bool:
        """Decides by the event's type and name alone. An event of an unknown kind is wanted, so that `ignores` can report it."""
        types = self._types.get(header.ns)
        if types is None:
            types = self._look_up(header.ns)
        return header.type in types or (bool(types) and header.type.startswith(UNKNOWN))

    def ignores(self, event: bytes, header: Header) -> bool:
        """Decides by the documents of an event that `wants` accepts."""
        if header.type in _KNOWN and header.ns not in self._conditions:
            return False
        if header.type.startswith(UNKNOWN):
            error = SourceUnsupported(
                f"{table_name(header.ns)} at {header.position}: expected a known kind of entry in the source's oplog, found {header.type.decode()!r}; "
                "it cannot be skipped: use a newer release of Sluice that knows it; or leave the table out (filter.tables) by `sluice changefeed "
                "update`, and take it in again: then it is copied"
            )
            raise error if header.table is None else error.about(header.table)
        conditions = self._conditions.get(header.ns)
        if conditions is None:
            return False
        spans = {
            "fullDocument": (header.full_at, header.full_end),
            "fullDocumentBeforeChange": (header.before_at, header.before_end),
        }
        images = {name: RawBSONDocument(event[at:end], READABLE) for name, (at, end) in spans.items() if end}
        key = {"documentKey": RawBSONDocument(header.key, READABLE)}
        return conditions.ignores_row(RowType(header.type.decode()), key | images)

    def ignores_document(self, name: TableName, document: bytes) -> bool:
        """Whether the filter leaves out the insert of this document."""
        return self._filter.of(name).ignores_row(RowType.INSERT, _insert_of(document))

    def left_out(self, name: TableName) -> Callable[[bytes], bool] | None:
        """Which documents of the table are not copied: those whose inserts are ignored for what they contain. None: all are."""
        conditions = [where for where in self._filter.of(name).conditions if where.insert is not None]
        if not conditions:
            return None
        return lambda document: any(where.ignores(RowType.INSERT, _insert_of(document)) for where in conditions)

    def _look_up(self, ns: bytes) -> frozenset[bytes]:
        if len(self._types) >= _MOST_NAMES:
            self._types.clear()
            self._conditions.clear()
        name = table_name(ns)
        found = self._filter.of(name) if name is not None else None
        types = _NOTHING
        if found is not None and found.wanted:
            types = frozenset(type_.value.encode() for type_ in RowType if type_ not in found.ignored)
            if found.conditions:
                self._conditions[ns] = found
        self._types[ns] = types
        return types
