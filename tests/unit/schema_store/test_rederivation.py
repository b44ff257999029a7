"""A node that takes in what has changed in etcd knows the same as one that derives everything from there."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Scope
from changefeed.table import TableId, TableName, TableSchema
from schema_store.store import SchemaStore, fold
from tests.unit.schema_store.histories import NAMES, History, answers, histories

SEEN = datetime(2026, 11, 21, tzinfo=UTC)
START, END = Position(ClusterTime(1, 0)), Position(ClusterTime(1_000, 0))
ORDERS = TableSchema(id=TableId("a" * 32), name=TableName("shop", "orders"), valid_from=START)
ITEMS = TableSchema(id=TableId("b" * 32), name=TableName("shop", "items"), valid_from=START)
RESIZED = DdlEvent(
    position=Position(ClusterTime(5, 0)),
    type=DdlType.MODIFY,
    db="shop",
    table=ORDERS.name,
    id=ORDERS.id,
    description=Document.of({"cappedSize": 5}),
)


class Etcd:
    """The bases and the records, and what happens to them: records come, are settled in order, and are folded."""

    def __init__(self, history: History) -> None:
        self._events = list(history.events)
        self._checkpoint = history.positions()[0]
        self.bases = {base.id: base for base in history.bases}
        self.records: dict[Position, DdlRecord] = {}

    @property
    def settled_below(self) -> Position:
        return min([self._checkpoint, *(record.position for record in self.records.values() if record.open)])

    def come(self, count: int) -> None:
        for event in self._events[:count]:
            self.records[event.position] = DdlRecord(event=event, scope=Scope(), state=DdlState.PENDING, seen_at=SEEN)
        del self._events[:count]

    def settle(self, count: int) -> None:
        pending = sorted(position for position, record in self.records.items() if record.open)
        for position in pending[:count]:
            event = self.records[position].event
            self.records[position] = DdlRecord(event=event, scope=Scope(), state=DdlState.DONE, seen_at=SEEN)

    def advance(self) -> None:
        """The checkpoint, as far as it can go."""
        pending = [position for position, record in self.records.items() if record.open]
        self._checkpoint = min([*pending, *(event.position for event in self._events), END])

    def fold(self, steps: int) -> None:
        found = fold(self.bases, self.records.values(), self._checkpoint, max_operations=5)
        for step, _ in zip(list(found), range(steps), strict=False):
            self.bases |= {schema.id: schema for schema in step.write}
            for table in step.remove:
                del self.bases[table]
            for position in step.ddls:
                del self.records[position]

    def enter(self, number: int) -> None:
        """A changed filter adds a table, valid from the checkpoint on."""
        name = TableName("new", f"t{number}")
        self.bases[TableId(f"entered{number}")] = TableSchema(
            id=TableId(f"entered{number}"), name=name, valid_from=self._checkpoint
        )


class Node:
    def __init__(self) -> None:
        self.store = SchemaStore()
        self._bases: Mapping[TableId, TableSchema] = {}
        self._records: Mapping[Position, DdlRecord] = {}

    def look(self, etcd: Etcd) -> None:
        changed = [
            base
            for table in self._bases.keys() | etcd.bases.keys()
            if (before := self._bases.get(table)) is not (now := etcd.bases.get(table))
            for base in (before, now)
            if base is not None
        ]
        gone = [record for position, record in self._records.items() if position not in etcd.records]
        store = self.store.with_bases(changed, gone, etcd.bases.get, etcd.records.values())
        self.store = store.gc(etcd.settled_below)
        self._bases, self._records = dict(etcd.bases), dict(etcd.records)


@settings(max_examples=300)
@given(histories(), st.data())
def test_a_node_that_looks_now_and_then_knows_what_the_bases_and_records_say(
    history: History, data: st.DataObject
) -> None:
    etcd, node = Etcd(history), Node()
    number = st.integers(0, 4)
    for turn in range(data.draw(st.integers(1, 8))):
        etcd.come(data.draw(number))
        etcd.settle(data.draw(number))
        if data.draw(st.booleans()):
            etcd.advance()
        etcd.fold(data.draw(number))
        if data.draw(st.booleans()):
            etcd.enter(turn)
        if data.draw(st.booleans()):
            before = node.store.versions
            node.look(etcd)
            fresh = SchemaStore.from_records(etcd.bases.values(), etcd.records.values()).gc(etcd.settled_below)
            positions = [position for position in history.positions() if position >= etcd.settled_below]
            assert answers(node.store.versions, history, positions) == answers(fresh.versions, history, positions)
            assert set(node.store.versions.names()) - set(NAMES) == set(fresh.versions.names()) - set(NAMES)
            if node.store.versions.agrees(before, etcd.settled_below):
                assert answers(before, history, positions) == answers(fresh.versions, history, positions)


def test_a_node_that_knew_a_record_learns_nothing_from_its_fold() -> None:
    etcd, node = Etcd(History((ORDERS, ITEMS), (RESIZED,))), Node()
    node.look(etcd)
    etcd.come(1)
    etcd.settle(1)
    before = node.store.versions
    node.look(etcd)
    changed = node.store.versions
    etcd.advance()
    etcd.fold(1)
    node.look(etcd)
    assert not changed.agrees(before, etcd.settled_below)
    assert node.store.versions.agrees(changed, etcd.settled_below)
    assert not etcd.records


def test_a_table_whose_drop_a_node_did_not_see_is_gone_with_its_records() -> None:
    name, table = TableName("shop", "new"), TableId("c" * 32)
    create, drop = (
        DdlEvent(position=Position(ClusterTime(seconds, 0)), type=type_, db="shop", table=name, id=table)
        for seconds, type_ in ((5, DdlType.CREATE), (6, DdlType.DROP))
    )
    etcd, node = Etcd(History((), (create, drop))), Node()
    etcd.come(1)
    etcd.settle(1)
    node.look(etcd)
    assert node.store.versions.latest(table) is not None
    etcd.come(1)
    etcd.settle(1)
    etcd.advance()
    etcd.fold(1)
    node.look(etcd)
    assert not etcd.records
    assert node.store.versions.latest(table) is None
