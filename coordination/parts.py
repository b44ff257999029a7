"""Assignments and reports, which name tables: each is split over keys by a hash of the table, so no value grows with all tables. Pure.

A change to one table rewrites the part of that table, and 3,072 parts of 10,000,000 tables stay within etcd's limit for a value.
A missing part counts as empty. Tables that share a position are written as a list under it.

**Assignments.** Parts are written in several transactions. After any prefix of them a reader sees the old or the new entry of each table,
never a mixture, since an entry is in exactly one part. That is enough, because the entries of different tables do not depend on each
other. Only a move between two nodes depends on the order, and the two-phase hand-over ensures it: the decision that gives the table to
the new node is a later one than the decision that took it away, not merely a later transaction. A part that becomes empty is written as
empty, not deleted, so the highest mod-revision of a node's parts only grows. It is the revision of the node's assignment.

**Reports.** The main value has one checkpoint for all tables, the parts have the tables that differ. Mostly a report is one transaction.
A report of more is written so that each table is never shown further than it is, after any prefix:

    before             checkpoint 12, a at 15
    after              checkpoint 20, b at 12
    1. parts           b at 12                   a: 15, b: 12, the others: 12
    2. main value      checkpoint 20             a: 15, b: 12, the others: 20
    3. parts           without a                 a: 20
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import TypeVar

from changefeed.position import Position
from changefeed.records.copy import CopyProgress
from changefeed.records.node import AssignedTable, Assignment, PositionReport
from changefeed.shards import Shards, differing, part_of
from changefeed.table import TableId
from coordination.etcd.protocol import MAX_TXN_BYTES, MAX_TXN_OPS, Delete, KeyValue, Op, Put, batches, bytes_of
from coordination.layout import decode, encode
from coordination.view import KeyGroup

_Tables = tuple[TableId, ...]
_MOST_BYTES = MAX_TXN_BYTES // 2

V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentPart:
    """`starts`: the tables by their start. `copied`: those that begin with a copy."""

    starts: Mapping[Position, _Tables] = field(default_factory=dict)
    copied: frozenset[TableId] = frozenset()
    leaving: frozenset[TableId] = frozenset()

    def tables(self) -> Iterator[tuple[TableId, AssignedTable]]:
        for start, tables in self.starts.items():
            plain, copied = AssignedTable(start=start), AssignedTable(start=start, copy=True)
            yield from ((table, copied if table in self.copied else plain) for table in tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPart:
    exceptions: Mapping[Position, _Tables] = field(default_factory=dict)
    released: Mapping[Position, _Tables] = field(default_factory=dict)
    copies: Mapping[TableId, CopyProgress] = field(default_factory=dict)
    stops: Mapping[TableId, int] = field(default_factory=dict)


def assignment_puts(group: str, before: Assignment, after: Assignment) -> list[Put]:
    """The parts that must be written to turn one assignment of a node into another."""
    changed = {part_of(table) for table in differing(before.tables, after.tables)}
    changed |= {part_of(table) for table in before.leaving ^ after.leaving}
    tables = _in_parts(changed, after.tables)
    leaving = _in_parts(changed, dict.fromkeys(after.leaving))
    return [Put(_part_key(group, part), encode(_assigned(tables[part], leaving[part]))) for part in sorted(changed)]


def _assigned(tables: Mapping[TableId, AssignedTable], leaving: Iterable[TableId]) -> AssignmentPart:
    return AssignmentPart(
        starts=_by_position({table: given.start for table, given in tables.items()}),
        copied=frozenset(table for table, given in tables.items() if given.copy),
        leaving=frozenset(leaving),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedAssignment:
    """One node's assignment, put together again at the cost of what has changed."""

    assignment: Assignment = field(default_factory=Assignment)
    rev: int = 0
    source: KeyGroup = field(default_factory=KeyGroup)
    _parts: Mapping[str, AssignmentPart] = field(default_factory=dict)

    def then(self, source: KeyGroup) -> JoinedAssignment:
        if source is self.source:
            return self
        keys = source.changed_since(self.source)
        parts = {key: decode(AssignmentPart, source[key]) for key in keys if key in source}
        gone = [self._parts[key] for key in keys if key in self._parts]
        known = {key: part for key, part in ({**self._parts, **parts}).items() if key in source}
        return JoinedAssignment(
            assignment=_assignment_of(parts.values(), self.assignment, gone),
            rev=max((kv.mod_rev for kv in source.values()), default=0),
            source=source,
            _parts=known,
        )


def _assignment_of(
    parts: Collection[AssignmentPart], before: Assignment, gone: Collection[AssignmentPart]
) -> Assignment:
    tables = dict(entry for part in parts for entry in part.tables())
    removed = {table for part in gone for table, _ in part.tables()} - tables.keys()
    leaving = before.leaving.difference(*(part.leaving for part in gone)).union(*(part.leaving for part in parts))
    known = before.tables if isinstance(before.tables, Shards) else Shards(before.tables)
    return Assignment(tables=known.but(tables, removed), leaving=leaving)


def report_txns(main: str, before: PositionReport | None, after: PositionReport) -> list[list[Op]]:
    """The transactions that turn one report, as far as it is in etcd, into another. `main`: the key of its main value."""
    group = f"{main}/"
    value = replace(after, exceptions={}, released={}, copies={}, stops={})
    known = before or value
    changed = {
        part_of(table)
        for one, other in zip(_named(known), _named(after), strict=True)
        for table in differing(one, other)
    }
    last, first = _report_parts(changed, after), _report_parts(changed, known)
    puts = [_report_op(group, part, last[part]) for part in sorted(changed)]
    whole: list[Op] = [*puts, Put(main, encode(value))]
    if len(whole) <= MAX_TXN_OPS and bytes_of(whole) <= _MOST_BYTES:
        return [whole]
    both = {part: _union(first[part], last[part]) for part in changed}
    widened = [[_report_op(group, part, both[part])] for part in sorted(changed) if both[part] != first[part]]
    narrowed = [[_report_op(group, part, last[part])] for part in sorted(changed) if both[part] != last[part]]
    return [*batches(widened, _MOST_BYTES), [Put(main, encode(value))], *batches(narrowed, _MOST_BYTES)]


def _named(report: PositionReport) -> Sequence[Mapping[TableId, object]]:
    return report.exceptions, report.released, report.copies, report.stops


def _report_parts(parts: AbstractSet[int], report: PositionReport) -> Mapping[int, ReportPart]:
    exceptions, released = _in_parts(parts, report.exceptions), _in_parts(parts, report.released)
    copies, stops = _in_parts(parts, report.copies), _in_parts(parts, report.stops)
    return {
        part: ReportPart(
            exceptions=_by_position(exceptions[part]),
            released=_by_position(released[part]),
            copies=copies[part],
            stops=stops[part],
        )
        for part in parts
    }


def _union(first: ReportPart, last: ReportPart) -> ReportPart:
    """The later entry of each table."""
    return ReportPart(
        exceptions=_by_position(_of_each(first.exceptions) | _of_each(last.exceptions)),
        released=last.released,
        copies=last.copies,
        stops=last.stops,
    )


def _report_op(group: str, part: int, value: ReportPart) -> Op:
    key = _part_key(group, part)
    return Put(key, encode(value)) if value != ReportPart() else Delete(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedReport:
    """One node's report, put together again at the cost of what has changed."""

    report: PositionReport | None = None
    _main: KeyValue | None = None
    _source: KeyGroup = field(default_factory=KeyGroup)
    _parts: Mapping[str, ReportPart] = field(default_factory=dict)

    def then(self, main: KeyValue, source: KeyGroup) -> JoinedReport:
        if source is self._source and self._main is not None and main.mod_rev == self._main.mod_rev:
            return self
        value, parts = decode(PositionReport, main), self._parts
        if source is not self._source:
            keys = source.changed_since(self._source)
            parts = {key: part for key, part in self._parts.items() if key not in keys}
            parts |= {key: decode(ReportPart, source[key]) for key in keys if key in source}
        return JoinedReport(report=_joined(value, parts.values()), _main=main, _source=source, _parts=parts)


def _joined(value: PositionReport, parts: Iterable[ReportPart]) -> PositionReport:
    parts = list(parts)
    if not parts:
        return value
    return replace(
        value,
        exceptions=dict(value.exceptions, **{table: at for part in parts for table, at in _entries(part.exceptions)}),
        released=dict(value.released, **{table: at for part in parts for table, at in _entries(part.released)}),
        copies=dict(value.copies, **{table: copy for part in parts for table, copy in part.copies.items()}),
        stops=dict(value.stops, **{table: rev for part in parts for table, rev in part.stops.items()}),
    )


def _entries(positions: Mapping[Position, _Tables]) -> Iterator[tuple[TableId, Position]]:
    return ((table, position) for position, tables in positions.items() for table in tables)


def _of_each(positions: Mapping[Position, _Tables]) -> dict[TableId, Position]:
    return dict(_entries(positions))


def _by_position(positions: Mapping[TableId, Position]) -> dict[Position, _Tables]:
    grouped: dict[Position, list[TableId]] = {}
    for table, position in sorted(positions.items()):
        grouped.setdefault(position, []).append(table)
    return {position: tuple(tables) for position, tables in grouped.items()}


def _in_parts(parts: AbstractSet[int], entries: Mapping[TableId, V]) -> Mapping[int, dict[TableId, V]]:
    found: defaultdict[int, dict[TableId, V]] = defaultdict(dict)
    if not parts:
        return found
    if isinstance(entries, Shards):
        return defaultdict(dict, {part: dict(entries.part(part)) for part in parts})
    for table, value in entries.items():
        if (part := part_of(table)) in parts:
            found[part][table] = value
    return found


def _part_key(group: str, part: int) -> str:
    return f"{group}{part:03x}"
