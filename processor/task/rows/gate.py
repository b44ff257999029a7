"""Which events of a scan a task takes: `RowFilter` by the changefeed's filter, `Gate` by the windows of the job's tables, up to its `EarlyEnd`. Pure.

All of it is called for each event.

**The filter** comes first, since the schema store need not know tables that the filter does not want. The source's server leaves out what is
cheap for it (`source.stream.filter_match`). The rest is decided here: by the bytes of the event's type and namespace, and by its documents only
where the filter has conditions on them.

**The gate.** A scan reads from the lowest start to the highest end of a job's tables. So it shows events that a table already has, events that a
table may not have yet, and events of other nodes' tables. A worked example; the job is a [100, 110), b [100, 105), c [107, 110):

    101 a, b, c      a and b are taken; c has its event already
    106 a, b         a is taken; b is held at 105 by a DDL
    108 c            taken
    108 d            not taken: the schema store knows d, so d is another node's table
    108 e            not taken: the DDL that creates e at 107 is open, so the events of e are read later
    108 f            an error: the schema store does not know f, so a DDL was missed. If it knows another table under the name, that one stops
                     alone, if it is the job's. Else the owner records a DDL that nobody can explain and that holds the name, and the next try
                     takes no notice of f
    103 g            not taken: g is unknown, and before 105 the filter had other patterns, which did not match g; or the changefeed's
                     checkpoint is 105: only stragglers are behind it, and b is one
    104 h            not taken: h leaves at 104 and enters at 104.1, since it is copied anew; the copy will contain the event

Events of servers before 6.0 have names only. A name means one table at a position.

**The early end** is where a task stops before the end of its window, because it holds enough. The place is between two cluster times, so no
transaction is cut. Everything before it was shown, nothing after it was. A worked example, three events at most, a table whose window has to
reach 104:

    events     100.1 a    100.2 b c    103.1 d    104.1 e    104.2 f
    taken      a b c, then d: 103.1 is before 104. The end is 104.1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from changefeed.cluster_time import ClusterTime
from changefeed.config.tables.filter import Filter, TableFilter
from changefeed.errors import InvariantError, SluiceError, SourceUnsupported, TableUnknown
from changefeed.event import RowType
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema, view_id
from processor.lanes.lanes import LaneJob
from processor.task.job import Held
from schema_store.versions import SchemaVersions
from source.oplog.row_entry import UNKNOWN
from source.raw_row import Header
from source.stream.change_event import table_name

READABLE: CodecOptions[RawBSONDocument] = CodecOptions(
    RawBSONDocument,
    tz_aware=True,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="surrogateescape",
)
"""Raw: the driver would decode `{$ref, $id}` to a DBRef, in which no path is found."""
_MOST_NAMES = 100_000
_NO_TYPES: frozenset[bytes] = frozenset()
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
                "update`, drop it at the target, and take it in again: then it is copied"
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
        rules = self._filter.of(name) if name is not None else None
        types = _NO_TYPES
        if rules is not None and rules.wanted:
            types = frozenset(type_.value.encode() for type_ in RowType if type_ not in rules.ignored)
            if rules.conditions:
                self._conditions[ns] = rules
        self._types[ns] = types
        return types


_Place: TypeAlias = tuple[int, bytes]
_Span: TypeAlias = tuple[_Place, _Place]
_NOTHING: _Span = ((0, b""), (0, b""))
_EVERYTHING: _Span = ((0, b""), (2**64, b""))
_ANEW = "leave {name} out (filter.tables) by `sluice changefeed update`, drop it at the target, and take it in again: then it is copied"
_AGAIN = "remove the changefeed and create it again with --start initial"


class Gate:
    """For one job. A table's window is looked up once for each of its names."""

    def __init__(self, job: LaneJob, schemas: SchemaVersions, held: Held) -> None:
        self._job = job
        self._schemas = schemas
        self._held = held
        self._scan = job.scan
        self._spans: dict[tuple[bytes, bytes], _Span] = {}

    def takes(self, header: Header) -> bool:
        span = self._spans.get((header.uuid, header.ns))
        if span is None:
            span = self._span(header)
        if span is _EVERYTHING:
            return True
        return span[0] <= (header.time, header.token) < span[1]

    def _span(self, header: Header) -> _Span:
        table = header.table
        if table is None:
            table = self._named(header)
            return _NOTHING if table is None else self._window_of(table)
        if not self._ours(table) and not self._known(table, header):
            return _NOTHING
        span = self._spans[header.uuid, header.ns] = self._window_of(table)
        return span

    def _ours(self, table: TableId) -> bool:
        return table in self._job.tables or table in self._job.own_windows

    def _known(self, table: TableId, header: Header) -> bool:
        """Whether the table is known, or will be. Returns False if the filter did not want it at the time; raises if a DDL was missed."""
        position = header.position
        if table in self._held.tables or self._schemas.at(table, position) is not None:
            return True
        name = table_name(header.ns)
        if name in self._held.unexplained:
            return False
        if self._before_what_is_known(position) or _copied_anew(self._schemas.after(table, position)):
            return False
        other = self._schemas.by_name(name, position) if name is not None else None
        if name is None or other is None:
            raise _unknown(header, name)
        if self._ours(other.id):
            raise InvariantError(f"{_missed(header)}: {_ANEW.format(name=name)}").about(other.id)
        return False

    def _named(self, header: Header) -> TableId | None:
        name, position = table_name(header.ns), header.position
        schema = self._schemas.by_name(name, position) if name else None
        if schema is not None:
            return schema.id
        if name in self._held.names or self._before_what_is_known(position):
            return None
        if name is None or not _copied_anew(self._schemas.next_by_name(name, position)):
            raise _unknown(header, name)
        return None

    def _before_what_is_known(self, position: Position) -> bool:
        return self._held.known_from is not None and position < self._held.known_from

    def _window_of(self, table: TableId) -> _Span:
        window = self._job.of(table)
        if window is None:
            return _NOTHING
        return _EVERYTHING if window == self._scan else (place(window.start), place(window.end))


def _copied_anew(following: TableSchema | None) -> bool:
    """DDLs of Sluice's own stand at times without a place in them; no event's own position is one."""
    return following is not None and (following.own_target or not following.valid_from.token)


def place(position: Position) -> _Place:
    """Compares with `(header.time, header.token)` in the same way as positions compare."""
    return position.ts.to_int(), position.token.encode()


def _unknown(header: Header, name: TableName | None) -> SluiceError:
    if name is None:
        return InvariantError(f"{_missed(header)}: {_AGAIN}")
    return TableUnknown(_missed(header)).about(view_id(name))


def _missed(header: Header) -> str:
    return (
        f"{header.type.decode()} event of {table_name(header.ns)} ({header.uuid.hex() or 'no id'}) at {header.position}: expected the "
        f"schema store to know this table, observed no such table; a DDL was missed"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Enough:
    """How much a window, or a slice of one, holds at most; the last transaction may exceed it."""

    bytes: int
    events: int


UNBOUNDED = Enough(bytes=2**63, events=2**63)


class EarlyEnd:
    def __init__(self, enough: Enough, least: Position, overdue: Callable[[], bool] = lambda: False) -> None:
        """`least`: no end before it. `overdue`: the task holds enough, whatever the numbers say."""
        self._enough = enough
        self._least = least
        self._overdue = overdue
        self.at: Position | None = None
        self.held = 0
        """Bytes of the events before it."""

    def before(self, events: Iterable[tuple[bytes, Header]]) -> Iterator[tuple[bytes, Header]]:
        """The events before the early end, which is `at` afterwards; all events if there is none."""
        most_events, most_bytes, overdue = self._enough.events, self._enough.bytes, self._overdue
        held = last = 0
        for count, pair in enumerate(events):
            event, header = pair
            if header.time > last:
                if last and (count >= most_events or held >= most_bytes or overdue()):
                    at = Position(ClusterTime.from_int(header.time))
                    if at >= self._least:
                        self.at = at
                        break
                last = header.time
            held += len(event)
            yield pair
        self.held = held
