"""`ShardedDdlWatch`: the DDL of a sharded cluster as the owner sees that of any source.

Several changefeeds share a watch, and each may have begun at another time. So an event names the UUID that its table had just before it,
and a changefeed knows by `newUuid` events which table that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby

from changefeed.documents.document import Document
from changefeed.errors import RetryableError, SourceMajorityStalled, SourceUnavailable
from changefeed.event import NOT_FOLLOWED, DdlEvent, DdlType
from changefeed.position import Position
from changefeed.table import TableId
from source.ddl_description import is_utf8, printable, printable_name
from source.ddl_watch import DdlBatch
from source.sharded.cluster_clients import ClusterClients
from source.sharded.effective_order import numbered
from source.sharded.tables.cluster_state import ClusterChange
from source.sharded.watch import ClusterWatch


class ShardedDdlWatch:
    """For one thread. The clients stay open."""

    def __init__(self, clients: ClusterClients, start: Position) -> None:
        self._clients = clients
        self._start = start
        self._watch: ClusterWatch | None = None
        self._uuids: dict[TableId, TableId] = {}
        """The present UUID of a table, by the one that it had at the start, if it is another."""

    def close(self) -> None:
        """May be called again."""
        if self._watch is not None:
            self._watch.close()

    def poll(self) -> DdlBatch:
        if self._watch is None:
            self._watch = ClusterWatch(self._clients, self._start.ts)
        step = self._watch.poll()
        resolved = max(Position(step.resolved), self._start)
        return DdlBatch(
            events=tuple(self._events(step.changes)),
            resolved=resolved,
            end=max(Position(step.end_ts), resolved),
            history=step.history,
            trouble=_trouble(step.trouble, step.held_by),
        )

    def _events(self, changes: Iterable[ClusterChange]) -> Iterator[DdlEvent]:
        """An entry may mean several: a movePrimary gives each table of its database another UUID."""
        for _, of_entry in groupby(changes, key=lambda change: change.position):
            for number, change in enumerate(of_entry):
                event = replace(self._event(change), position=numbered(change.position, number))
                if event.position >= self._start:
                    yield event

    def _event(self, change: ClusterChange) -> DdlEvent:
        event = self._named(change)
        if is_utf8(event.db, event.table, event.renamed_to):
            return event
        said = Document.of({NOT_FOLLOWED: f"{event.type.value} of a table whose name is no UTF-8"})
        return replace(
            event,
            type=DdlType.UNKNOWN,
            db=printable(event.db),
            table=printable_name(event.table),
            renamed_to=printable_name(event.renamed_to),
            description=event.description if event.type is DdlType.UNKNOWN else said,
        )

    def _named(self, change: ClusterChange) -> DdlEvent:
        if isinstance(change, DdlEvent):
            if change.type in (DdlType.CREATE, DdlType.MODIFY) and "timeseries" in change.description.decode():
                # the rows of its buckets are not told from those of other system collections: none of it may be taken for a table
                return replace(change, type=DdlType.UNKNOWN)
            return replace(change, id=self._uuid(change.id), drop_target=self._uuid(change.drop_target))
        self._uuids[change.table] = change.uuid
        return DdlEvent(
            position=change.position,
            type=DdlType.NEW_UUID,
            db=change.name.db,
            table=change.name,
            id=change.before,
            description=Document.of({"uuid": change.uuid}),
        )

    def _uuid(self, table: TableId | None) -> TableId | None:
        return None if table is None else self._uuids.get(table, table)


def _trouble(trouble: Mapping[str, RetryableError], held_by: Iterable[str]) -> RetryableError | None:
    """One error for all streams. That a majority stands still is told as such: it needs somebody, and no read fails."""
    if not trouble:
        return None
    stalled = [error for error in trouble.values() if isinstance(error, SourceMajorityStalled)]
    if stalled:
        return stalled[0]
    said = "; ".join(f"{stream}: {error}" for stream, error in sorted(trouble.items()))
    return SourceUnavailable(f"{said}; the cluster's history is held by {', '.join(held_by)}")
