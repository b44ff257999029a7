"""`Gate`: which events of a scan a job takes. Pure, and called for each event.

A scan reads from the lowest start to the highest end of a job's tables. So it shows events that a table already has, events that a table
may not have yet, and events of other nodes' tables. A worked example; the job is a [100, 110), b [100, 105), c [107, 110):

    101 a, b, c      a and b are taken; c has its event already
    106 a, b         a is taken; b is held at 105 by a DDL
    108 c            taken
    108 d            not taken: the schema store knows d, so d is another node's table
    108 e            not taken: the DDL that creates e at 107 is open, so the events of e are read later
    108 f            an error: the schema store does not know f, so a DDL was missed. If it knows another table under the name, that one stops
                     alone, if it is the job's; and nothing happens if a DDL that nobody could explain holds that name
    103 g            not taken: g is unknown, and before 105 the filter had other patterns, which did not match g; or the changefeed's
                     checkpoint is 105: only stragglers are behind it, and b is one
    104 h            not taken: h leaves at 104 and enters at 104.1, since it is copied anew; the copy will contain the event

Events of servers before 6.0 have names only. A name means one table at a position.
"""

from __future__ import annotations

from typing import TypeAlias

from changefeed.errors import InvariantError, SourceUnsupported
from changefeed.position import Position, Window
from changefeed.table import TableId, TableKind, TableSchema
from processor.lanes.lanes import LaneJob
from processor.task.job import Held
from schema_store.versions import SchemaVersions
from source.raw.row_header import Header
from source.stream.events.raw_event import table_name

_Place: TypeAlias = tuple[int, bytes]
_Span: TypeAlias = tuple[_Place, _Place]
_NOTHING: _Span = ((0, b""), (0, b""))
_EVERYTHING: _Span = ((0, b""), (2**64, b""))
_FOLLOWED_SINCE = (
    "{name}: the time series was copied by an earlier release, which did not follow its measurements; leave it out (filter.tables), drop it at the "
    "target, and take it in again: then it is copied and followed"
)
_ANEW = "leave {name} out (filter.tables) by `sluice changefeed update`, and take it in again: then it is copied"
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
        if (view := self._series_known_as_view(header)) is not None:
            if self._ours(view.id):
                raise SourceUnsupported(_FOLLOWED_SINCE.format(name=view.name)).about(view.id)
            return False
        other = self._schemas.by_name(name, position) if name is not None else None
        if other is None:
            raise _missed(header, _AGAIN)
        if self._ours(other.id):
            raise _missed(header, _ANEW.format(name=name)).about(other.id)
        return False

    def _series_known_as_view(self, header: Header) -> TableSchema | None:
        name = table_name(header.ns)
        schema = self._schemas.by_name(name, header.position) if name is not None else None
        return schema if schema is not None and schema.kind is TableKind.TIMESERIES and not schema.bucketed else None

    def _named(self, header: Header) -> TableId | None:
        name, position = table_name(header.ns), header.position
        schema = self._schemas.by_name(name, position) if name else None
        if schema is not None:
            return schema.id
        if name in self._held.names or self._before_what_is_known(position):
            return None
        if name is None or not _copied_anew(self._schemas.next_by_name(name, position)):
            raise _missed(header, _AGAIN)
        return None

    def _before_what_is_known(self, position: Position) -> bool:
        return self._held.known_from is not None and position < self._held.known_from

    def _window_of(self, table: TableId) -> _Span:
        window = self._job.of(table)
        if window is None:
            return _NOTHING
        return _EVERYTHING if window == self._scan else _span_of(window)


def _copied_anew(following: TableSchema | None) -> bool:
    """DDLs of Sluice's own stand at times without a place in them; no event's own position is one."""
    return following is not None and (following.beside is not None or not following.valid_from.token)


def _span_of(window: Window) -> _Span:
    return place(window.start), place(window.end)


def place(position: Position) -> _Place:
    """Compares with `(header.time, header.token)` in the same way as positions compare."""
    return position.ts.to_int(), position.token.encode()


def _missed(header: Header, remedy: str) -> InvariantError:
    return InvariantError(
        f"{header.type.decode()} event of {table_name(header.ns)} ({header.uuid.hex() or 'no id'}) at {header.position}: expected the "
        f"schema store to know this table, observed no such table; a DDL was missed: {remedy}"
    )
