"""`Follower`: applies what the readers of a sharded cluster show, strictly, to tables in memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

import bson

from changefeed.cluster_time import ClusterTime
from changefeed.event import DdlEvent, DdlType
from changefeed.table import TableId, TableName
from source.oplog.row_entry import update_of
from source.raw_row import Header
from source.sharded.cluster_clients import ClusterClients
from source.sharded.rows.merge import stretches
from source.sharded.rows.row_places import of_user
from source.sharded.rows.row_scan import row_scan
from source.sharded.rows.shard_row_reader import RowRange, ShardRowReader
from source.sharded.tables.cluster_state import ClusterChange, NewUuid
from source.sharded.watch import ClusterStep, ClusterWatch

Document = dict[str, Any]


class ImpossibleOperation(AssertionError):
    """A row that no server would have written in the state that the rows before it gave."""


@dataclass
class FollowedTable:
    name: TableName
    rows: dict[Any, Document] = field(default_factory=dict)
    indexes: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class FollowedRow:
    entry: bytes
    header: Header

    @property
    def ts(self) -> ClusterTime:
        return self.header.position.ts

    @property
    def uuid(self) -> TableId:
        return TableId(self.header.uuid.hex())


def rows_of(clients: ClusterClients, since_ts: ClusterTime, step: ClusterStep) -> Iterator[FollowedRow]:
    """Those of users up to the step, in their order, each with its whole key."""
    scan = partial(row_scan, {}, whole_keys=True)
    readers = [
        ShardRowReader(clients.of(name), name, scan).read(
            RowRange(
                start_ts=max(since_ts, shard.since_ts or since_ts),
                end_ts=min(step.resolved, shard.until_ts or step.resolved),
                until_ts=step.history.until(name, step.resolved),
            )
        )
        for name, shard in step.history.shards.items()
    ]
    for stretch in stretches(readers):
        yield from (FollowedRow(entry, header) for _, _, entry, header in stretch if of_user(header))


class Follower:
    """`at_each_time` is called after all operations of each effective time."""

    def __init__(
        self, clients: ClusterClients, start_ts: ClusterTime, at_each_time: Callable[[Follower], None] = lambda _: None
    ) -> None:
        self.tables: dict[TableId, FollowedTable] = {}
        self.changes: list[ClusterChange] = []
        self.reached_ts = start_ts
        self.rows = self.restarts = 0
        self.shards: set[str] = set()
        self._clients = clients
        self._at_each_time = at_each_time
        self._ids: dict[TableId, TableId] = {}
        self.watch = ClusterWatch(clients, start_ts)

    def named(self, name: str) -> dict[Any, Document]:
        [table] = [table for table in self.tables.values() if str(table.name) == name]
        return table.rows

    def start_anew(self) -> None:
        """As another process would: from a bare time, and from what a schema store knows."""
        before = self.watch
        before.close()
        self.watch = ClusterWatch(self._clients, self.reached_ts, self._ids)
        live = {uuid: table.id for uuid, table in self.watch.tables.live.items()}
        assert self.watch.tables.live == before.tables.live, (
            f"at {self.reached_ts}: {self.watch.tables} {before.tables}"
        )
        assert {uuid: self.watch.tables.holders(uuid) for uuid in live} == {
            uuid: before.tables.holders(uuid) for uuid in live
        }
        self.restarts += 1

    def follow(self, until_ts: ClusterTime, *, restarts: random.Random | None = None, share: float = 0.2) -> None:
        while self.reached_ts <= until_ts:
            self.step()
            if restarts is not None and restarts.random() < share:
                self.start_anew()

    def step(self) -> ClusterStep:
        step = self.watch.poll()
        assert not step.trouble, step.trouble
        self._ids |= {change.uuid: change.table for change in step.changes if isinstance(change, NewUuid)}
        changes = iter([*step.changes, None])
        due = next(changes)
        for rows in self._rows(step):
            while due is not None and due.position.ts <= rows[0].ts:
                self._change(due)
                due = next(changes)
            self._apply(rows)
            self._at_each_time(self)
        while due is not None:
            self._change(due)
            due = next(changes)
        self.reached_ts = step.resolved
        self.shards = {name for name, shard in step.history.shards.items() if shard.until_ts is None}
        return step

    def _rows(self, step: ClusterStep) -> Iterator[list[FollowedRow]]:
        """Those of each time."""
        for _, rows in groupby(rows_of(self._clients, self.reached_ts, step), key=lambda row: row.ts):
            yield list(rows)

    def _document(self, row: FollowedRow) -> tuple[TableId, Any]:
        table = self.watch.tables.ids.get(row.uuid)
        if table is None:
            raise ImpossibleOperation(f"{row.header.type!r} of unknown UUID {row.uuid} at {row.header.position}")
        return table, bson.decode(row.header.key)["_id"]

    def _apply(self, rows: list[FollowedRow]) -> None:
        for row in rows:
            self._apply_one(row)
            self.rows += 1

    def _apply_one(self, row: FollowedRow) -> None:
        table, key = self._document(row)
        if table not in self.tables:
            raise ImpossibleOperation(f"{row.header.type!r} of {key} at {row.header.position}, table {table} is gone")
        documents, header = self.tables[table].rows, row.header
        if (header.type == b"insert") == (key in documents):
            raise ImpossibleOperation(
                f"{header.type!r} of {key} in {self.tables[table].name} at {header.position}: it is {documents.get(key)}"
            )
        match header.type:
            case b"insert" | b"replace":
                documents[key] = bson.decode(row.entry[header.full_at : header.full_end])
            case b"update":
                _update(documents[key], bson.decode(update_of(row.entry, header)))
            case b"delete":
                del documents[key]

    def _change(self, change: ClusterChange) -> None:
        self.changes.append(change)
        if not isinstance(change, DdlEvent) or change.table is None:
            return
        assert change.id is not None
        match change.type:
            case DdlType.CREATE:
                assert change.id not in self.tables
                self.tables[change.id] = FollowedTable(change.table)
            case DdlType.DROP:
                assert self.tables.pop(change.id).name == change.table
            case DdlType.CREATE_INDEXES:
                self.tables[change.id].indexes |= {spec["name"] for spec in change.description.decode()["indexes"]}
            case DdlType.DROP_INDEXES:
                self.tables[change.id].indexes -= {spec["name"] for spec in change.description.decode()["indexes"]}
            case DdlType.RENAME:
                if change.drop_target is not None:
                    assert self.tables.pop(change.drop_target).name == change.renamed_to
                assert self.tables[change.id].name == change.table
                assert change.renamed_to is not None
                self.tables[change.id].name = change.renamed_to


def _update(document: Document, described: Mapping[str, Any]) -> None:
    assert not described["truncatedArrays"]
    for path in described["removedFields"]:
        document.pop(path, None)
    for path, value in described["updatedFields"].items():
        assert "." not in path
        document[path] = value
