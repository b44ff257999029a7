from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.records.node import AssignedTable, Assignment, PositionReport
from changefeed.shards import PARTS, part_of
from changefeed.table import TableId
from coordination.etcd.protocol import MAX_TXN_BYTES, MAX_TXN_OPS, KeyValue, Op, Put
from coordination.parts import (
    JoinedAssignment,
    JoinedReport,
    assignment_puts,
    report_txns,
)
from coordination.view import KeyGroup
from tests.joined import join_assignment
from tests.unit.coordination.strategies import positions, tables

AT = Position.parse("100.1/8264AB")

assignments = st.builds(
    Assignment,
    tables=st.dictionaries(tables, st.builds(AssignedTable, start=positions, copy=st.booleans()), max_size=8),
    leaving=st.frozensets(tables, max_size=4),
)


def kv(value: bytes, key: str, mod_rev: int = 7) -> KeyValue:
    return KeyValue(key=key, value=value, create_rev=1, mod_rev=mod_rev)


def id_of(number: int) -> TableId:
    return TableId(f"{number:032x}")


@settings(max_examples=100)
@given(assignments, assignments)
def test_after_any_prefix_of_an_assignments_writes_each_table_is_as_before_or_as_after(
    before: Assignment, after: Assignment
) -> None:
    stored = {put.key: put.value for put in assignment_puts("/a/", Assignment(), before)}
    for put in assignment_puts("/a/", before, after):
        stored[put.key] = put.value
        seen, _ = join_assignment(kv(value, key) for key, value in stored.items())
        for table in before.tables.keys() | after.tables.keys():
            assert seen.tables.get(table) in (before.tables.get(table), after.tables.get(table))
        assert before.leaving & after.leaving <= seen.leaving <= before.leaving | after.leaving
    assert join_assignment(kv(value, key) for key, value in stored.items())[0] == after


@settings(max_examples=100)
@given(st.lists(assignments, max_size=5))
def test_an_assignment_is_joined_from_what_has_changed(history: list[Assignment]) -> None:
    joined, keys, before, rev = JoinedAssignment(), KeyGroup(), Assignment(), 0
    for assignment in history:
        keys = keys.then()
        for put in assignment_puts("/a/", before, assignment):
            rev += 1
            keys.change(put.key, kv(put.value, put.key, rev))
        joined, before = joined.then(keys), assignment
        assert (joined.assignment, joined.rev) == (assignment, rev)


def test_a_change_to_one_table_rewrites_one_part() -> None:
    before = Assignment(tables={id_of(n): AssignedTable(start=AT) for n in range(1000)})
    changed = id_of(5)
    after = Assignment(tables={**before.tables, changed: AssignedTable(start=AT, copy=True)})
    assert [put.key for put in assignment_puts("/a/", before, after)] == [f"/a/{part_of(changed):03x}"]


def test_no_part_of_a_large_assignment_is_large() -> None:
    start = AssignedTable(start=Position(AT.ts, "82" * 80), copy=True)
    puts = assignment_puts("/a/", Assignment(), Assignment(tables={id_of(n): start for n in range(100_000)}))
    assert len(puts) == PARTS
    assert max(len(put.value) for put in puts) < 10_000


def test_the_revision_of_an_assignment_is_that_of_its_newest_part() -> None:
    puts = assignment_puts("/a/", Assignment(), Assignment(tables={id_of(n): AssignedTable(start=AT) for n in (1, 2)}))
    assert join_assignment([kv(put.value, put.key, rev) for put, rev in zip(puts, (5, 9), strict=True)])[1] == 9
    assert join_assignment([]) == (Assignment(), 0)


def _apply(keys: dict[str, KeyValue], ops: list[Op]) -> None:
    for op in ops:
        if isinstance(op, Put):
            keys[op.key] = kv(op.value, op.key, mod_rev=max((each.mod_rev for each in keys.values()), default=0) + 1)
        else:
            keys.pop(op.key, None)  # type: ignore[union-attr]


def report(checkpoint: Position, exceptions: dict[TableId, Position]) -> PositionReport:
    return PositionReport(
        run=1, barrier_rev=1, assignment_rev=1, checkpoint=checkpoint, exceptions=exceptions, stops={id_of(1): 3}
    )


def joined(keys: dict[str, KeyValue]) -> PositionReport:
    parts = KeyGroup({key: each for key, each in keys.items() if key != "/p/n"})
    found = JoinedReport().then(keys["/p/n"], parts).report
    assert found is not None
    return found


def test_a_report_is_one_transaction() -> None:
    before = report(AT, {id_of(n): Position(ClusterTime(n, 1)) for n in range(50)})
    after = report(AT, {id_of(n): Position(ClusterTime(n, 2)) for n in range(40)})
    keys: dict[str, KeyValue] = {}
    for known, now in ((None, before), (before, after), (after, after)):
        [ops] = report_txns("/p/n", known, now)
        _apply(keys, ops)
        assert joined(keys) == now


def test_a_report_of_many_tables_is_bounded_transactions() -> None:
    many = report(AT, {id_of(n): Position(ClusterTime(n, 1), "82" * 80) for n in range(50_000)})
    txns = report_txns("/p/n", None, many)
    assert max(len(ops) for ops in txns) <= MAX_TXN_OPS
    assert max(sum(len(op.value) for op in ops if isinstance(op, Put)) for ops in txns) < MAX_TXN_BYTES
    keys: dict[str, KeyValue] = {"/p/n": kv(b"", "/p/n")}
    for ops in txns:
        _apply(keys, ops)
    assert joined(keys) == many


places = st.integers(1, 9).map(lambda seconds: Position(ClusterTime(seconds, 0)))


@settings(max_examples=30)
@given(st.data())
def test_after_any_prefix_of_a_reports_transactions_no_table_is_shown_further_than_it_is(data: st.DataObject) -> None:
    """With so many exceptions that one transaction does not suffice."""
    ids = [id_of(n) for n in range(400)]
    first, last = data.draw(places), data.draw(places)
    spread = data.draw(st.integers(1, 7))
    before = report(first, {id: Position(ClusterTime(1 + n % spread, 0)) for n, id in enumerate(ids) if n % 3})
    places_after = {
        id: max(before.of(id), Position(ClusterTime(2 + n % spread, 0)), last if n % 5 else before.of(id))
        for n, id in enumerate(ids)
    }
    after = report(last, {id: at for id, at in places_after.items() if at != last})
    keys: dict[str, KeyValue] = {}
    for ops in report_txns("/p/n", None, before):
        _apply(keys, ops)
    for ops in report_txns("/p/n", before, after):
        _apply(keys, ops)
        seen = joined(keys)
        assert all(seen.of(id) <= places_after[id] for id in ids)
    assert joined(keys) == after
