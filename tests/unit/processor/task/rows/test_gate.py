from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import bson
import pytest
from bson.binary import Binary
from bson.timestamp import Timestamp

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import EMPTY, Document
from changefeed.errors import InvariantError, TableUnknown
from changefeed.position import Position, Window
from changefeed.table import TableId, TableKind, TableName, TableSchema, view_id
from owner.decision.recopy import begun
from processor.lanes.lanes import LaneJob
from processor.task.job import Held
from processor.task.rows.gate import Gate
from schema_store.versions import SchemaVersions
from source.raw_row import Header
from source.stream.change_event import scan

A, B, C, D, E, F = (TableId(letter * 32) for letter in "abcdef")


def at(seconds: int, token: str = "") -> Position:
    return Position(ClusterTime(seconds, 0), token)


def name(table: TableId) -> TableName:
    return TableName("shop", f"table_{table[0]}")


JOB = LaneJob(number=1, window=Window(at(100), at(110)), tables=frozenset({A, B, C}), replay_until=at(100))
SCHEMAS = SchemaVersions.of(TableSchema(id=table, name=name(table), valid_from=at(1)) for table in (A, B, C, D))


def header(seconds: int, table: TableId, *, named_only: bool = False, token: str = "82") -> Header:
    identity = {} if named_only else {"collectionUUID": Binary(bytes.fromhex(table), 4)}
    event = {
        "_id": {"_data": token},
        "operationType": "insert",
        "clusterTime": Timestamp(seconds, 0),
        **identity,
        "fullDocument": {"_id": 1},
        "ns": {"db": name(table).db, "coll": name(table).coll},
        "documentKey": {"_id": 1},
    }
    return scan(bson.encode(event))


def gate(held: Held | None = None, **own: tuple[int, int]) -> Gate:
    windows = {TableId(letter * 32): Window(at(start), at(end)) for letter, (start, end) in own.items()}
    return Gate(replace(JOB, own_windows=windows), SCHEMAS, held or Held())


def test_the_worked_example() -> None:
    worked = gate(Held(tables=frozenset({E})), b=(100, 105), c=(107, 110))
    assert worked.takes(header(101, A))
    assert worked.takes(header(101, B))
    assert not worked.takes(header(101, C))
    assert worked.takes(header(106, A))
    assert not worked.takes(header(106, B))
    assert worked.takes(header(108, C))
    assert not worked.takes(header(108, D))
    assert not worked.takes(header(108, E))
    with pytest.raises(TableUnknown, match="a DDL was missed") as missed:
        worked.takes(header(108, F))
    assert missed.value.table == view_id(name(F))


@pytest.mark.parametrize("named_only", [False, True])
def test_rows_of_tables_that_nobody_knew_before_the_patterns_changed_are_passed_over(named_only: bool) -> None:
    """Other tables of the scan are still before the change of the patterns, but the source's server already filters by the new ones."""
    behind = gate(Held(known_from=at(105)))
    assert not behind.takes(header(103, F, named_only=named_only))
    with pytest.raises(TableUnknown, match="a DDL was missed"):
        behind.takes(header(105, F, named_only=named_only))


def test_a_held_table_that_nobody_knows_yet_is_passed_over_however_often_it_comes() -> None:
    holding = gate(Held(tables=frozenset({E})))
    assert [holding.takes(header(seconds, E)) for seconds in (105, 106)] == [False, False]


def test_rows_of_another_table_under_a_known_name_stop_the_table_of_that_name_alone() -> None:
    schemas = SchemaVersions.of(TableSchema(id=table, name=name(F), valid_from=at(1)) for table in (A,))
    with pytest.raises(InvariantError, match=r"leave shop\.table_f out .*then it is copied") as missed:
        Gate(JOB, schemas, Held()).takes(header(101, F))
    assert missed.value.table == A
    others = replace(JOB, tables=frozenset({B}))
    assert not Gate(others, schemas, Held()).takes(header(101, F))


def test_rows_under_a_name_that_waits_for_a_user_are_passed_over() -> None:
    assert not gate(Held(unexplained=frozenset({name(F)}))).takes(header(101, F))


@pytest.mark.parametrize("kind", [TableKind.COLLECTION, TableKind.TIMESERIES])
@pytest.mark.parametrize("named_only", [False, True])
def test_rows_between_the_leave_and_the_enter_of_a_table_that_is_copied_anew_are_passed_over(
    named_only: bool, kind: TableKind
) -> None:
    """Both are at times of their own choice, which rows may have, too."""
    options = EMPTY if kind is TableKind.COLLECTION else Document.of({"timeseries": {"timeField": "at"}})
    copied = TableSchema(id=D, name=name(D), valid_from=at(1), kind=kind, options=options)
    leave, enter = (record.event for record in begun(copied, name(D), (at(103), at(105)), at(103), datetime.now(UTC)))
    schemas = SCHEMAS.apply_all([leave, enter])
    for seconds in (102, 103, 104, 105):
        assert not Gate(JOB, schemas, Held()).takes(header(seconds, D, named_only=named_only))
    ended = Gate(JOB, SCHEMAS.apply(leave), Held())
    with pytest.raises(TableUnknown, match="a DDL was missed"):
        ended.takes(header(104, D, named_only=named_only))


def test_a_window_ends_between_events_of_one_cluster_time() -> None:
    job = LaneJob(
        number=1, window=Window(at(100, "8205"), at(110, "8207")), tables=frozenset({A}), replay_until=at(100)
    )
    narrow = Gate(job, SCHEMAS, Held())
    wider = Gate(
        LaneJob(
            number=1,
            window=Window(at(99), at(99)),
            own_windows={A: Window(at(100, "8205"), at(110, "8207")), B: Window(at(100), at(111))},
            replay_until=at(100),
        ),
        SCHEMAS,
        Held(),
    )
    assert narrow.takes(header(110, A, token="8206"))
    taken = [
        wider.takes(header(seconds, A, token=token))
        for seconds, token in ((100, "8204"), (100, "8205"), (110, "8206"), (110, "8207"))
    ]
    assert taken == [False, True, True, False]


def test_a_table_without_a_part_in_the_job_is_left_out() -> None:
    assert not gate(a=(100, 100)).takes(header(101, A))


def test_events_with_names_only_are_of_the_table_that_has_the_name() -> None:
    named = gate(Held(names=frozenset({name(E)})), b=(100, 105))
    assert named.takes(header(101, A, named_only=True))
    assert not named.takes(header(106, B, named_only=True))
    assert not named.takes(header(106, D, named_only=True))
    assert not named.takes(header(106, E, named_only=True))
    with pytest.raises(TableUnknown, match="table_f"):
        named.takes(header(106, F, named_only=True))
