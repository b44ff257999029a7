"""`ScriptedOwner`: writes to etcd what a test wants an owner to have written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import Lifecycle, State
from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord, Scope
from changefeed.records.node import AssignedTable, Assignment, NodeId, PositionReport
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId, TableName, TableSchema
from coordination.etcd.protocol import DeletePrefix, Etcd, Put
from coordination.layout import Layout, encode
from coordination.parts import assignment_puts
from devstack.mongodb.server import Client
from source.connection import session_time
from tests.joined import join_assignment, join_report


class ScriptedOwner:
    """The owner of one changefeed that replicates collections of the source as they are at its creation."""

    def __init__(self, etcd: Etcd, layout: Layout, configuration: Configuration, source: Client) -> None:
        self._etcd, self._layout, self._source = etcd, layout, source
        self.id = ChangefeedId(configuration.id)
        self._names: dict[TableId, TableName] = {}
        self.start = self.now()
        self._status = ChangefeedStatus(
            start=self.start, checkpoint=self.start, resolved=self.start, run=1, info_version=1, epoch=1
        )
        info = ChangefeedInfo(capture=Capture.OPLOG, configuration=configuration, created_at=datetime.now(UTC))
        etcd.txn((), (Put(layout.info(self.id), encode(info)),))
        self.say(self._status)

    def now(self) -> Position:
        """A position after all writes so far. No barrier may be beyond what the source has shown."""
        with self._source.start_session(causal_consistency=False) as session:
            self._source.admin.command("ping", session=session)
            return Position(session_time(session).next())

    def say(self, status: ChangefeedStatus) -> None:
        self._status = status
        self._etcd.txn((), (Put(self._layout.status(self.id), encode(status)),))

    def pause(self) -> None:
        self.say(replace(self._status, lifecycle=Lifecycle(state=State.STOPPED)))

    def resume(self) -> None:
        self.say(replace(self._status, lifecycle=Lifecycle(), run=self._status.run + 1))

    def knows(self, name: TableName) -> TableId:
        """Writes the table's base schema."""
        [listed] = self._source[name.db].list_collections(filter={"name": name.coll})
        id = TableId(listed["info"]["uuid"].hex())
        schema = TableSchema(id=id, name=name, valid_from=self.start)
        self._etcd.txn((), (Put(self._layout.schema(self.id, id), encode(schema)),))
        self._names[id] = name
        return id

    def barrier(self, position: Position, held: Mapping[TableId, Position] | None = None) -> None:
        """`held`: tables of open DDLs."""
        records = [_open_ddl(table, self._names[table], at) for table, at in (held or {}).items()]
        puts = [Put(self._layout.ddl(self.id, record.position), encode(record)) for record in records]
        barrier = Put(self._layout.barrier(self.id), encode(Barrier(epoch=1, position=position)))
        if not puts:
            self._etcd.txn((), (DeletePrefix(self._layout.ddls(self.id)),))
        self._etcd.txn((), (*puts, barrier))

    def assign(
        self, node: NodeId, starts: Mapping[TableId, Position], leaving: frozenset[TableId] = frozenset()
    ) -> None:
        group = self._layout.assignment(self.id, node)
        before, _ = join_assignment(self._etcd.range(group).items)
        tables = {table: AssignedTable(start=start) for table, start in starts.items()}
        self._etcd.txn((), assignment_puts(group, before, Assignment(tables=tables, leaving=leaving)))

    def report(self, node: NodeId) -> PositionReport | None:
        main = self._etcd.get(self._layout.position(self.id, node))
        return (
            join_report([main, *self._etcd.range(f"{self._layout.position(self.id, node)}/").items]) if main else None
        )


def _open_ddl(table: TableId, name: TableName, at: Position) -> DdlRecord:
    event = DdlEvent(position=at, type=DdlType.MODIFY, db=name.db, table=name, id=table)
    return DdlRecord(event=event, scope=Scope(tables=frozenset({table})), seen_at=datetime.now(UTC))
