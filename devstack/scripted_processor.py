"""`ScriptedProcessor`: a node that replicates nothing, but reports its tables as replicated up to the barrier."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Self

from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord
from changefeed.records.node import AssignedTable, NodeId, NodeRecord, PositionReport, Role
from changefeed.records.requests import ChangefeedId
from changefeed.records.status import ChangefeedStatus, Straggler
from changefeed.table import TableId
from coordination.decoded import Decoded
from coordination.etcd.client import EtcdClient
from coordination.layout import Layout, child
from coordination.mirror import Mirror
from coordination.parts import report_txns
from coordination.session import open_session
from coordination.view import View

_LEAST_PAUSE = 0.1
_VIEW_TIMEOUT = timedelta(seconds=10)


class ScriptedProcessor:
    """Follows each changefeed of the cluster like a processor, with at most ten reports a second."""

    def __init__(self, etcd: EtcdClient, layout: Layout, name: str, ttl: timedelta = timedelta(seconds=10)) -> None:
        def describe(node: NodeId) -> NodeRecord:
            roles = frozenset({Role.PROCESSOR})
            now = datetime.now(UTC)
            return NodeRecord(
                id=node,
                name=name,
                admin_address="",
                roles=roles,
                version="0",
                started_at=now,
            )

        self._layout = layout
        self._reader = Decoded(layout)
        self._session, self._store = open_session(etcd, layout, name=name, describe=describe, ttl=ttl)
        self._mirror = Mirror(etcd, layout.root)
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._mirror.listen(self._wake.set)
        self._places: dict[tuple[ChangefeedId, TableId], Position] = {}
        self._given: dict[tuple[ChangefeedId, TableId], AssignedTable] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def node(self) -> NodeId:
        return self._session.node

    def places(self, id: ChangefeedId) -> dict[TableId, Position]:
        """The positions of this node's tables."""
        return {table: place for (feed, table), place in dict(self._places).items() if feed == id}

    def kill(self) -> None:
        """Stops without revoking the lease, which then expires."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()
        self._session.lost.set()

    def __enter__(self) -> Self:
        self._session.start()
        self._mirror.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._wake.set()
        self._thread.join()
        self._mirror.stop()
        self._session.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait(0.2)
            self._stopping.wait(_LEAST_PAUSE)
            self._wake.clear()
            view = self._mirror.at_least(self._store.settle(), _VIEW_TIMEOUT)
            for group in view.groups_below(self._layout.changefeeds):
                id = ChangefeedId(child(group, self._layout.changefeeds))
                if group == self._layout.changefeed(id) and self._session.alive:
                    self._report(id, view)

    def _report(self, id: ChangefeedId, view: View) -> None:
        status = self._reader.one(ChangefeedStatus, view, self._layout.status(id))
        stored = self._reader.one(Barrier, view, self._layout.barrier(id))
        if status is None or stored is None:
            return
        records = self._reader.group(DdlRecord, view, self._layout.ddls(id)).values()
        barrier = stored.record.holding(record.record for record in records)
        assigned = self._reader.assignments(view, id).get(self.node)
        tables = assigned.record.tables if assigned else {}
        leaving = assigned.record.leaving if assigned else frozenset()
        running = status.record.lifecycle.running
        stragglers = self._reader.group(Straggler, view, self._layout.stragglers(id))
        stops = {TableId(table): stored.mod_rev for table, stored in stragglers.items() if stored.record.stopped}
        for table in [table for feed, table in self._places if feed == id and table not in tables]:
            del self._places[id, table], self._given[id, table]
        for table, given in tables.items():
            if self._given.get((id, table)) != given:
                self._given[id, table] = given
                self._places[id, table] = given.start
            at = self._places[id, table]
            if running and table not in leaving and table not in stops:
                self._places[id, table] = max(at, barrier.of(table))
        places = {table: self._places[id, table] for table in tables}
        report = PositionReport(
            run=status.record.run if running else 0,
            barrier_rev=stored.mod_rev,
            assignment_rev=assigned.mod_rev if assigned else 0,
            checkpoint=barrier.position,
            exceptions={table: at for table, at in places.items() if at != barrier.position},
            released={table: places[table] for table in leaving},
            stops={table: rev for table, rev in stops.items() if table in tables},
        )
        reported = self._reader.report(view, id, self.node)
        if report != reported:
            for ops in report_txns(self._layout.position(id, self.node), reported, report):
                self._store.commit(ops)
