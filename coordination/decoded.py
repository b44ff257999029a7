"""`Decoded`: the records in views. A value is decoded again only when it has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from changefeed.records import Assignment, ChangefeedId, NodeId
from coordination.etcd.protocol import KeyValue
from coordination.layout import Layout, child, decode, join_assignment
from coordination.mirror import View

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredRecord(Generic[T]):
    """A record and its revisions. The next writer compares `mod_rev`; the `create_rev` of a node's record is the node's epoch."""

    record: T
    create_rev: int
    mod_rev: int


@dataclass(frozen=True, slots=True)
class _Group:
    source: Mapping[str, KeyValue]
    records: Mapping[str, Any]


class Decoded:
    """For one thread, with views of one mirror in the order in which they were taken.

    A mirror shares unchanged groups between views, so an unchanged group is the same object.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._groups: dict[str, _Group] = {}
        self._singles: dict[str, tuple[KeyValue, Any]] = {}
        self._assignments: dict[str, tuple[Mapping[str, KeyValue], StoredRecord[Assignment]]] = {}

    def group(self, kind: type[T], view: View, group: str) -> Mapping[str, StoredRecord[T]]:
        """The records of a group in key order, by the node, table or position in their key."""
        source = view.group(group)
        cached = self._groups.get(group)
        if cached is None or cached.source is not source:
            before = cached or _Group({}, {})
            cached = _Group(source, dict(_refreshed(kind, group, source, before)))
            self._groups[group] = cached
        return cached.records

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

    def assignments(self, view: View, changefeed: ChangefeedId) -> Mapping[NodeId, StoredRecord[Assignment]]:
        """The assignments of all nodes that have one. `mod_rev` is the revision of the whole assignment."""
        prefix = self._layout.assignments(changefeed)
        return {NodeId(child(group, prefix)): self._assignment(view, group) for group in view.groups_below(prefix)}

    def _assignment(self, view: View, group: str) -> StoredRecord[Assignment]:
        source = view.group(group)
        cached = self._assignments.get(group)
        if cached is None or cached[0] is not source:
            assignment, rev = join_assignment(source.values())
            created = min((kv.create_rev for kv in source.values()), default=0)
            cached = self._assignments[group] = (source, StoredRecord(assignment, created, rev))
        return cached[1]


def _refreshed(
    kind: type[T], group: str, source: Mapping[str, KeyValue], before: _Group
) -> Iterator[tuple[str, StoredRecord[T]]]:
    for key, kv in sorted(source.items()):
        name = child(key, group)
        known = before.source.get(key)
        unchanged = known is not None and known.mod_rev == kv.mod_rev
        yield name, before.records[name] if unchanged else StoredRecord(decode(kind, kv), kv.create_rev, kv.mod_rev)
