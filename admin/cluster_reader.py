"""`ClusterReader`: the state of the cluster in etcd, for the admin API and the metrics.

It reads the node's mirror, so reading costs etcd nothing, but for the first read of a minute on a node that is not the owner: the mirror then
reads what it had left out. If the mirror does not follow etcd, a read raises an error: an old state is never shown as the present one.

`Changes` wakes a stream of the admin API when etcd's content has changed, or whether this node can write to etcd has. It wakes a stream at most a few times a second, and every few seconds without a change: what is shown may depend on the time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Self

from changefeed.errors import CoordinationUnavailable, NotFoundError, RecordUnreadable, RetryableError
from changefeed.event import DdlType
from changefeed.lifecycle import ErrorReport, State
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.records.node import NodeId, NodeRecord
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableId, TableSchema, defined
from coordination import decoded
from coordination.decoded import Decoded
from coordination.election import ElectedOwner, owner_in
from coordination.layout import Layout
from coordination.mirror import Mirror
from coordination.view import View
from owner import etcd_view
from owner.etcd_view import OwnerView
from owner.tables.known_tables import KnownTables
from owner.tables.progress import TableProgress

_PATIENCE = timedelta(seconds=2)
_PATIENCE_FOR_ALL = timedelta(seconds=10)
"""A snapshot with the definitions of 100,000 tables takes a few seconds."""
_KEPT = timedelta(minutes=1)
_FOLLOWING = frozenset({State.NORMAL, State.WARNING, State.PENDING})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedTables:
    """The present tables of a changefeed and their progress."""

    living: tuple[TableSchema, ...]
    progress: TableProgress
    bases: Mapping[TableId, TableSchema] = field(default_factory=dict)
    records: Mapping[Position, DdlRecord] = field(default_factory=dict)
    """What they were derived from."""

    def of(self, table: TableId) -> Position | None:
        """None for a table without rows, as a view, or without a node."""
        return self.progress.of(table)


class UnreadableChangefeed(RecordUnreadable):
    """A record of it cannot be read. It stands still: nothing of it is decided on a part of its records."""

    def __init__(self, id: ChangefeedId, error: RecordUnreadable, *, being_removed: bool) -> None:
        super().__init__(
            f"{error}. Changefeed {id!r} stands still, and no other one is affected. If a newer release wrote this record, upgrade the nodes; if not, "
            f"remove it (`sluice changefeed remove {id}`) and create it again",
            error.problems,
        )
        self.being_removed = being_removed


@dataclass(frozen=True, slots=True)
class Changefeeds:
    readable: dict[ChangefeedId, OwnerView] = field(default_factory=dict)
    unreadable: dict[ChangefeedId, UnreadableChangefeed] = field(default_factory=dict)


class ClusterView:
    """The cluster at one revision. It may be used only inside `ClusterReader.read`."""

    def __init__(self, view: View, reader: Decoded, layout: Layout) -> None:
        self._view = view
        self._reader = reader
        self._layout = layout
        self._changefeeds: Changefeeds | None = None

    @property
    def owner(self) -> ElectedOwner | None:
        return owner_in(self._view, self._layout)

    @property
    def nodes(self) -> Mapping[NodeId, decoded.StoredRecord[NodeRecord]]:
        return self._reader.nodes(self._view)

    @property
    def ids(self) -> list[ChangefeedId]:
        return self._reader.changefeeds(self._view)

    def changefeed(self, id: ChangefeedId) -> OwnerView:
        try:
            found = etcd_view.read(self._reader, self._view, self._layout, id)
        except RecordUnreadable as error:
            asked = self._view.get(self._layout.removed(id)) is not None
            raise UnreadableChangefeed(id, error, being_removed=asked) from None
        if found is None:
            raise no_such_changefeed(id)
        return found

    def changefeeds(self) -> Changefeeds:
        """Each is read by itself: one whose records cannot be read hides no other."""
        if self._changefeeds is not None:
            return self._changefeeds
        found = self._changefeeds = Changefeeds()
        for id in self.ids:
            try:
                found.readable[id] = self.changefeed(id)
            except UnreadableChangefeed as error:
                found.unreadable[id] = error
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingNode:
    """The state of the serving node that is not in etcd."""

    node: Callable[[], NodeId | None] = lambda: None
    not_ready: Callable[[], str] = lambda: ""
    stale: Callable[[], str] = lambda: ""
    """Why what it reads in etcd may be old."""
    unwritable: Callable[[], ErrorReport | None] = lambda: None
    """Why the node cannot write to etcd; the state that it reads there may then be out of date."""


class ClusterReader:
    """Many threads share it."""

    def __init__(self, mirror: Mirror, layout: Layout, serving: ServingNode | None = None) -> None:
        self.mirror = mirror
        self.layout = layout
        self.serving = serving or ServingNode()
        self._lock = threading.Lock()
        self._decoded = Decoded(layout)

    @contextmanager
    def read(self, at_least: int = 0, *, reports: bool = True) -> Iterator[ClusterView]:
        """`at_least` is the revision of the caller's last write: the view is at least as new. `reports`: whether the nodes' reports are needed."""
        if reports:
            self.mirror.need_apart_for(_KEPT)
        with self._lock:
            yield ClusterView(self._newest(at_least, reports), self._decoded, self.layout)

    def changefeed(self, id: ChangefeedId, at_least: int = 0) -> OwnerView:
        with self.read(at_least) as view:
            return view.changefeed(id)

    def _newest(self, at_least: int, whole: bool) -> View:
        if self.mirror.view().revision >= at_least and not self.mirror.current:
            reason = self.mirror.interrupted_by or "it has just started"
            raise CoordinationUnavailable(f"this node does not follow etcd at present: {reason}; ask another node")
        return self.mirror.at_least(at_least, _PATIENCE if self.mirror.whole else _PATIENCE_FOR_ALL, whole=whole)


def unreadable(reader: ClusterReader) -> list[str]:
    """What a probe may say about changefeeds that cannot be read. Nothing, while etcd cannot be read either."""
    try:
        with reader.read(reports=False) as view:
            return [str(error) for _, error in sorted(view.changefeeds().unreadable.items())]
    except RetryableError:
        return []


def tables_of(known: OwnerView, before: ChangefeedTables | None = None) -> ChangefeedTables:
    """`before`: of an earlier view of the same changefeed; then only what has changed since is visited."""
    if known.status is None or known.status.checkpoint is None:
        return ChangefeedTables(living=(), progress=TableProgress())
    floor, nodes = known.floor(known.status.checkpoint), known.nodes({})
    if before is not None and before.bases is known.bases and before.records is known.records:
        return replace(before, progress=before.progress.next(before.progress.tables, nodes, floor))
    tables = KnownTables(known.bases, known.records.values())
    living = tuple(schema for _, schema in tables.settled)
    living += _about_to_begin_again(known.records.values(), {schema.id for schema in living})
    progress = TableProgress().next(tables.replicated, nodes, floor)
    return ChangefeedTables(living=living, progress=progress, bases=known.bases, records=known.records)


def _about_to_begin_again(records: Iterable[DdlRecord], living: AbstractSet[TableId]) -> tuple[TableSchema, ...]:
    """Tables that are copied anew and have left for it: to a user they are there all the time."""
    entering = (record.event for record in records if record.open and record.event.type is DdlType.ENTER)
    return tuple(
        defined(event.description, event.id, event.table, event.position)
        for event in entering
        if event.id is not None and event.table is not None and event.id not in living
    )


def follows(known: OwnerView) -> bool:
    """Whether its tables are being replicated, or will be without a user's action."""
    return known.status is not None and known.status.lifecycle.state in _FOLLOWING


def no_such_changefeed(id: ChangefeedId) -> NotFoundError:
    return NotFoundError(f"there is no changefeed {id!r}; `sluice changefeed list` shows all changefeeds")


class Changes:
    """The changes for one call. They end with the call, so that its thread becomes free, and when the server stops."""

    def __init__(
        self,
        reader: ClusterReader,
        when_over: Callable[[Callable[[], None]], bool],
        stopping: threading.Event,
        ended: Callable[[], None],
        every: timedelta = timedelta(milliseconds=250),
        again: timedelta = timedelta(seconds=5),
    ) -> None:
        self._reader = reader
        self._stopping = stopping
        self._ended = ended
        self._every = every.total_seconds()
        self._again = again.total_seconds()
        self._seen: tuple[int, ErrorReport | None] | None = None
        self._over = threading.Event()
        if not when_over(self._over.set):
            self._over.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended()

    def wait(self) -> bool:
        """Returns at once the first time, then after the next change; False when the call or the server has ended."""
        if self._seen is not None:
            self._over.wait(self._every)
        again_at = time.monotonic() + self._again
        while not self._over.is_set() and not self._stopping.is_set():
            now = self._reader.mirror.view().revision, self._reader.serving.unwritable()
            if now != self._seen or time.monotonic() >= again_at:
                self._seen = now
                return True
            self._over.wait(self._every)
        return False
