"""`Decoded`: the records in views. A value is decoded again only when it has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, TypeVar

import structlog

from changefeed.documents.document import Document
from changefeed.errors import RecordUnreadable
from changefeed.lifecycle import ErrorReport
from changefeed.records.node import Assignment, NodeHealth, NodeId, NodeRecord, PositionReport, Role
from changefeed.records.requests import ChangefeedId, MoveRequest, RepairRequest, SkipRequest, TableRequest
from changefeed.table import TableSchema
from coordination.etcd.protocol import KeyValue
from coordination.large_store import LargeReader
from coordination.layout import Layout, child, decode
from coordination.parts import JoinedAssignment, JoinedReport
from coordination.view import KeyGroup, MirroredValue, View

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

_REQUESTS = frozenset({MoveRequest, RepairRequest, SkipRequest, TableRequest})
"""What users ask for. One that cannot be read is as if nobody had asked, and a new one takes its place."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class StoredRecord(Generic[T]):
    """A record and its revisions. The next writer compares `mod_rev`; the `create_rev` of a node's record is the node's epoch."""

    record: T
    create_rev: int
    mod_rev: int


@dataclass(frozen=True, slots=True)
class _Records:
    source: KeyGroup
    records: Mapping[str, Any]
    last: str = ""
    """No key is greater."""
    large: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """What records refer to, by their keys."""


@dataclass(frozen=True, slots=True)
class _Referring:
    """A record and the large values that it refers to."""

    record: object
    large: frozenset[str]


class Decoded:
    """For one thread, with views of one mirror in the order in which they were taken.

    A mirror shares unchanged groups between views, so an unchanged group is the same object.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._groups: dict[str, _Records] = {}
        self._derived: dict[tuple[str, object], tuple[Mapping[str, Any], Mapping[Any, Any]]] = {}
        self._singles: dict[str, tuple[KeyValue, Any]] = {}
        self._assignments: dict[str, JoinedAssignment] = {}
        self._reports: dict[str, JoinedReport] = {}
        self._large = LargeReader()
        self._present: frozenset[ChangefeedId] = frozenset()

    def group(self, kind: type[T], view: View, group: str) -> Mapping[str, StoredRecord[T]]:
        """The records of a group in key order, by the node, table or position in their key.

        The same object as long as the group is unchanged.
        """
        source = view.group(group)
        known = self._groups.get(group) or _Records(KeyGroup(), {})
        if known.source is not source:
            known = self._groups[group] = self._refreshed(kind, view, group, known)
        return known.records

    def nodes(self, view: View) -> Mapping[NodeId, StoredRecord[NodeRecord]]:
        """The living nodes. One whose record cannot be read lives all the same: it keeps its tables until it has given them up, and gets none."""
        found = self.group(NodeRecord, view, self._layout.nodes)
        return {NodeId(node): stored for node, stored in found.items()}

    def large(self, *groups: str) -> frozenset[str]:
        """The large values that the records of these groups refer to, as they were last asked for."""
        found = (self._groups[group].large.values() for group in groups if group in self._groups)
        return frozenset().union(*(names for of_group in found for names in of_group))

    def derived(
        self, kind: type[T], view: View, group: str, entry: Callable[[str, StoredRecord[T]], tuple[K, V] | None]
    ) -> Mapping[K, V]:
        """What `entry`, a function of a module, makes of the records of a group. The same object as long as the group is unchanged."""
        records = self.group(kind, view, group)
        known, made = self._derived.get((group, entry), (None, {}))
        if known is not records:
            entries = (entry(name, stored) for name, stored in records.items())
            made = dict(each for each in entries if each is not None)
            self._derived[group, entry] = records, made
        return made

    def one(self, kind: type[T], view: View, key: str) -> StoredRecord[T] | None:
        kv = view.get(key)
        if kv is None:
            self._singles.pop(key, None)
            return None
        cached, stored = self._singles.get(key, (None, None))
        if cached is None or cached.mod_rev != kv.mod_rev:
            stored = StoredRecord(decode(kind, kv), kv.create_rev, kv.mod_rev)
            self._singles[key] = (kv, stored)
        return stored

    def changefeeds(self, view: View) -> list[ChangefeedId]:
        """Of one that is being removed, keys other than its info may still be there."""
        prefix = self._layout.changefeeds
        found = [ChangefeedId(child(group, prefix)) for group in view.groups_below(prefix) if view.get(f"{group}info")]
        present = frozenset(found)
        for id in self._present - present:
            self._forget(id)
        self._present = present
        return found

    def _forget(self, id: ChangefeedId) -> None:
        """What was kept of a changefeed that is gone, which nobody asks for again."""
        places = self._layout.changefeed(id), self._layout.positions(id)
        kept: tuple[dict[str, Any], ...] = self._groups, self._singles, self._assignments, self._reports
        for known in kept:
            for key in [key for key in known if key.startswith(places)]:
                del known[key]
        for group, entry in [each for each in self._derived if each[0].startswith(places)]:
            del self._derived[group, entry]

    def assignments(self, view: View, changefeed: ChangefeedId) -> Mapping[NodeId, StoredRecord[Assignment]]:
        """The assignments of all nodes that have one. `mod_rev` is the revision of the whole assignment."""
        prefix = self._layout.assignments(changefeed)
        return {NodeId(child(group, prefix)): self._assignment(view, group) for group in view.groups_below(prefix)}

    def _assignment(self, view: View, group: str) -> StoredRecord[Assignment]:
        known = self._assignments.get(group) or JoinedAssignment()
        joined = self._assignments[group] = known.then(view.group(group))
        return StoredRecord(joined.assignment, joined.rev, joined.rev)

    def reports(self, view: View, changefeed: ChangefeedId) -> Mapping[NodeId, PositionReport]:
        place = self._layout.positions(changefeed)
        found = {NodeId(child(key, place)): self._report(view, key) for key in view.group(place)}
        return {node: report for node, report in found.items() if report is not None}

    def report(self, view: View, changefeed: ChangefeedId, node: NodeId) -> PositionReport | None:
        return self._report(view, self._layout.position(changefeed, node))

    def _report(self, view: View, main: str) -> PositionReport | None:
        kv = view.get(main)
        if kv is None:
            self._reports.pop(main, None)
            return None
        known = self._reports.get(main) or JoinedReport()
        joined = self._reports[main] = known.then(kv, view.group(f"{main}/"))
        return joined.report

    def _refreshed(self, kind: type[Any], view: View, group: str, known: _Records) -> _Records:
        source = view.group(group)
        records, last, in_order, large = dict(known.records), known.last, True, dict(known.large)
        for key in sorted(source.changed_since(known.source)):
            name, kv, before = child(key, group), source.get(key), known.source.get(key)
            if kv is None:
                records.pop(name, None)
                large.pop(key, None)
            elif before is None or before.mod_rev != kv.mod_rev:
                large.pop(key, None)
                try:
                    found = self._read(kind, view, kv)
                except RecordUnreadable as error:
                    if kind not in _REQUESTS:
                        raise
                    _log.warning("request_not_obeyed", error=str(error), remedy="give the command again")
                    records.pop(name, None)
                    continue
                if isinstance(found, _Referring):
                    large[key] = found.large
                record = found.record if isinstance(found, _Referring) else found
                records[name] = StoredRecord(record, kv.create_rev, kv.mod_rev)
                in_order = in_order and (before is not None or key > last)
                last = max(last, key)
        if not in_order:
            records = {name: records[name] for name in (child(key, group) for key in sorted(source))}
        return _Records(source, records, last, large)

    def _read(self, kind: type[Any], view: View, kv: KeyValue) -> Any:
        """There are many schemas, so their values are kept as records only."""
        if kind is NodeRecord:
            return _node(kv, self._layout)
        if kind is TableSchema and isinstance(kv, MirroredValue):
            return kv.read_once(partial(self._decoded, kind, view))
        return self._decoded(kind, view, kv)

    def _decoded(self, kind: type[Any], view: View, kv: KeyValue) -> Any:
        names = set[str]()

        def large(name: str) -> Document:
            assert view.etcd is not None, "expected the view of a mirror"
            names.add(name)
            return self._large.read(view.etcd, self._layout.large_beside(kv.key), name, kv)

        record = decode(kind, kv, large)
        return _Referring(record, frozenset(names)) if names else record


def _node(kv: KeyValue, layout: Layout) -> NodeRecord:
    """It may be of a newer release, so it is not taken to lack anything."""
    try:
        return decode(NodeRecord, kv)
    except RecordUnreadable as error:
        node, long_ago = NodeId(child(kv.key, layout.nodes)), datetime.fromtimestamp(0, UTC)
        report = ErrorReport.of(error, long_ago)
        return NodeRecord(
            id=node,
            name=node,
            admin_address="",
            roles=frozenset({Role.PROCESSOR}),
            version="",
            started_at=long_ago,
            draining=True,
            health=NodeHealth(ready=False, error=report),
        )
