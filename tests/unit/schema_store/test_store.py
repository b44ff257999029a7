"""The records in etcd mean the same before, during and after folding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.config.tables.filter import Disposition
from changefeed.documents.document import EMPTY, Document
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Scope
from changefeed.table import TableId, TableName, TableSchema, TableSize
from schema_store.store import FoldStep, SchemaStore, fold
from schema_store.versions import SchemaVersions
from tests.unit.schema_store.histories import History, assert_agrees, histories
from tests.work import lines_run

SEEN = datetime(2026, 11, 21, tzinfo=UTC)
A, B = TableId("a" * 32), TableId("b" * 32)
SHOP_A, SHOP_B = TableName("shop", "a"), TableName("shop", "b")


def at(increment: int, token: str = "") -> Position:
    return Position(ClusterTime(100, increment), token)


def base(table: TableId, name: TableName) -> TableSchema:
    return TableSchema(id=table, name=name, valid_from=at(0))


def record(event: DdlEvent, state: DdlState = DdlState.DONE) -> DdlRecord:
    return DdlRecord(event=event, scope=Scope(), state=state, seen_at=SEEN)


def ddl(increment: int, kind: DdlType, name: TableName, table: TableId, description: Document = EMPTY) -> DdlEvent:
    return DdlEvent(position=at(increment), type=kind, db=name.db, table=name, id=table, description=description)


def resized(increment: int, size: int, table: TableId = A, name: TableName = SHOP_A) -> DdlEvent:
    return ddl(increment, DdlType.MODIFY, name, table, Document.of({"cappedSize": size}))


class Etcd:
    """The two groups of keys, and how a step changes them."""

    def __init__(self, bases: Iterable[TableSchema], records: Iterable[DdlRecord]) -> None:
        self.bases = {schema.id: schema for schema in bases}
        self.records = {record.position: record for record in records}

    def carry_out(self, step: FoldStep) -> None:
        self.bases |= {schema.id: schema for schema in step.write}
        for table in step.remove:
            del self.bases[table]
        for position in step.ddls:
            del self.records[position]

    def versions(self) -> SchemaVersions:
        return SchemaStore.from_records(self.bases.values(), self.records.values()).versions


def test_only_settled_records_are_schema_changes() -> None:
    records = [
        record(resized(3, 30)),
        replace(record(resized(5, 50), DdlState.SKIPPED), disposition=Disposition.SCHEMA_ONLY),
        record(resized(7, 70), DdlState.EXECUTING),
        record(resized(9, 90), DdlState.PENDING),
    ]
    versions = SchemaStore.from_records([base(A, SHOP_A)], records).versions
    sizes = [schema.options.decode().get("size") for n in (1, 4, 6, 8, 10) if (schema := versions.at(A, at(n)))]
    assert sizes == [None, 30, 50, 50, 50]


def test_records_are_taken_as_they_settle() -> None:
    pending, done = record(resized(5, 50), DdlState.PENDING), record(resized(5, 50))
    store = SchemaStore.from_records([base(A, SHOP_A)], [pending])
    assert store.take([pending]) is store
    settled = store.take([done])
    assert settled == SchemaStore.from_records([base(A, SHOP_A)], [done])
    assert settled.take([done]) is settled
    assert store.versions.at(A, at(5)) != settled.versions.at(A, at(5)), "the one before is as it was"


def test_records_seen_again_after_garbage_was_collected_change_nothing() -> None:
    records = [record(resized(3, 30)), record(ddl(5, DdlType.DROP, SHOP_A, A)), record(resized(7, 70, B, SHOP_B))]
    store = SchemaStore.from_records([base(A, SHOP_A), base(B, SHOP_B)], records).gc(at(7))
    assert store.take(records).versions == store.versions


def test_folding_writes_a_table_once_however_often_it_changed() -> None:
    records = [record(resized(n, n)) for n in range(1, 9)]
    (step,) = fold({A: base(A, SHOP_A)}, records, at(7))
    (written,) = step.write
    assert (written.options.decode(), written.valid_from) == ({"size": 6}, at(6))
    assert step.ddls == tuple(at(n) for n in range(1, 7)), "a record at the checkpoint may be seen again at a restart"


def test_a_folded_table_keeps_the_size_that_it_had_at_the_start() -> None:
    """It is known of the base alone: no event says it. A table that a DDL created has none."""
    size = TableSize(documents=5, bytes=500)
    records = [record(resized(1, 1)), record(ddl(2, DdlType.CREATE, SHOP_B, B))]
    (step,) = fold({A: replace(base(A, SHOP_A), size=size)}, records, at(9))
    assert [(schema.id, schema.size) for schema in step.write] == [(A, size), (B, None)]


def test_a_table_created_and_dropped_below_the_checkpoint_leaves_nothing() -> None:
    records = [record(ddl(1, DdlType.CREATE, SHOP_A, A)), record(ddl(2, DdlType.DROP, SHOP_A, A))]
    assert list(fold({}, records, at(3))) == [FoldStep(ddls=(at(1), at(2)))]


def test_an_open_record_of_a_straggler_stays_and_those_of_other_tables_are_folded_past_it() -> None:
    records = [record(resized(1, 1)), record(resized(2, 2, B, SHOP_B), DdlState.PENDING), record(resized(3, 3))]
    (step,) = fold({A: base(A, SHOP_A), B: base(B, SHOP_B)}, records, at(9))
    assert step.ddls == (at(1), at(3))
    (written,) = step.write
    assert (written.id, written.valid_from) == (A, at(3))


def test_a_dropped_database_of_many_tables_is_folded_in_parts_with_its_record_last() -> None:
    bases = {schema.id: schema for n in range(25) if (schema := base(TableId(f"{n:032x}"), TableName("shop", f"t{n}")))}
    drop = record(DdlEvent(position=at(5), type=DdlType.DROP_DATABASE, db="shop"))
    steps = list(fold(bases, [drop], at(9), max_operations=10))
    assert [len(step.remove) for step in steps] == [10, 10, 5]
    assert [step.ddls for step in steps] == [(), (), (at(5),)]


def test_steps_stay_within_the_bytes_allowed() -> None:
    big = Document.of({"validator": {"text": "x" * 1000}})
    names = [TableName("shop", f"t{n}") for n in range(5)]
    records = [record(ddl(n + 1, DdlType.CREATE, name, TableId(f"{n:032x}"), big)) for n, name in enumerate(names)]
    steps = list(fold({}, records, at(9), max_bytes=2500))
    assert [len(step.write) for step in steps] == [2, 2, 1]
    assert len(list(fold({}, records, at(9), max_bytes=1))) == 5, "one by one when a single one is too large"


@settings(max_examples=150)
@given(histories(), st.data())
def test_any_prefix_of_the_steps_keeps_all_answers_from_the_checkpoint_on(
    history: History, data: st.DataObject
) -> None:
    checkpoint = data.draw(st.sampled_from(history.positions()))
    max_operations = data.draw(st.sampled_from([3, 4, 100]))
    etcd = Etcd(history.bases, map(record, history.events))
    kept = [position for position in history.positions() if position >= checkpoint]
    steps = list(fold(etcd.bases, etcd.records.values(), checkpoint, max_operations=max_operations))
    for step in steps:
        assert len(step.write) + len(step.remove) + len(step.ddls) <= max_operations
        etcd.carry_out(step)
        assert_agrees(etcd.versions(), history, kept)
    assert all(position >= checkpoint for position in etcd.records)
    assert not list(fold(etcd.bases, etcd.records.values(), checkpoint))


@settings(max_examples=100)
@given(histories(), st.data())
def test_an_owner_that_takes_over_in_the_middle_of_a_fold_goes_on_from_there(
    history: History, data: st.DataObject
) -> None:
    etcd = Etcd(history.bases, map(record, history.events))
    checkpoint = history.positions()[-1]
    while steps := list(fold(etcd.bases, etcd.records.values(), checkpoint, max_operations=3)):
        for step in steps[: data.draw(st.integers(1, len(steps)))]:
            etcd.carry_out(step)
    assert_agrees(etcd.versions(), history, [checkpoint])


def test_folding_many_dropped_tables_is_no_more_work_for_each_of_them() -> None:
    assert lines_run(partial(_fold_dropped, 4_000)) < 6 * lines_run(partial(_fold_dropped, 1_000))


def _fold_dropped(count: int) -> None:
    tables = [base(TableId(f"{n:032x}"), TableName("s", f"t{n}")) for n in range(count)]
    drops = [
        record(DdlEvent(position=at(1, f"{n:08X}"), type=DdlType.DROP, db="s", table=schema.name, id=schema.id))
        for n, schema in enumerate(tables)
    ]
    steps = list(fold({schema.id: schema for schema in tables}, drops, at(2)))
    assert sum(len(step.remove) for step in steps) == count
