"""Chunks read at different times, and the changes after them: the result is always equal to the source."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import bson
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from hypothesis import example, given, settings
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.event import RowType
from changefeed.records.copy import CopiedChunk
from changefeed.table import TableId, TableName
from processor.task.copied_ranges import CopiedFilter, CopiedRanges, Overlap
from sink.row import RowChange, TargetTable

Row: TypeAlias = dict[str, int]
Rows: TypeAlias = dict[int, Row]
KEYS = range(4)
_NAME = TableName("shop", "orders")
_TABLE = TargetTable(id=TableId("ab" * 16), source=_NAME, name=_NAME)


@dataclass(frozen=True)
class Change:
    key: int
    kind: str
    fields: Row = field(default_factory=dict)
    unset: str = ""


def apply(rows: Rows, change: Change, *, replay: bool) -> None:
    """Applies like the sink: insert or replace whole, update an existing document, skip what does not fit a replay."""
    if change.kind == "delete":
        rows.pop(change.key, None)
    elif change.kind == "put":
        rows[change.key] = dict(change.fields)
    elif change.key in rows:
        rows[change.key].update(change.fields)
        rows[change.key].pop(change.unset, None)
    else:
        assert replay, "an update of a missing document outside a replay is divergence"


names = st.sampled_from("fgh")
values = st.dictionaries(names, st.integers(0, 3), max_size=3)
puts = st.builds(Change, st.sampled_from(KEYS), st.just("put"), values)
deletes = st.builds(Change, st.sampled_from(KEYS), st.just("delete"))
sets = st.builds(Change, st.sampled_from(KEYS), st.just("update"), values)
unsets = st.builds(Change, st.sampled_from(KEYS), st.just("update"), st.just({}), names)


def history(changes: list[Change]) -> tuple[list[Rows], list[Change]]:
    """The source after each change, and the effective changes: an update or a delete of a missing document has no effect."""
    rows: Rows = {0: {"f": 1}, 1: {"g": 1}}
    states, events = [{key: dict(row) for key, row in rows.items()}], []
    for change in changes:
        if change.kind == "put" or change.key in rows:
            apply(rows, change, replay=False)
            events.append(change)
            states.append({key: dict(row) for key, row in rows.items()})
    return states, events


def chunk(after: int, until: int) -> CopiedChunk:
    return CopiedChunk(after=ClusterTime(0, after), until=ClusterTime(0, until), documents=0, bytes=0)


def bound(value: Any) -> Document:
    return Document.of({"_id": value})


def key(value: Any) -> bytes:
    return bson.encode({"_id": value})


def ordered(rows: Rows) -> dict[int, list[tuple[str, int]]]:
    return {number: list(row.items()) for number, row in rows.items()}


@settings(max_examples=200)
@given(
    st.lists(st.one_of(puts, deletes, sets, unsets), max_size=12),
    st.lists(st.integers(0, 12), min_size=3, max_size=3),
)
@example([Change(0, "update", unset="f"), Change(0, "update", {"f": 2}), Change(0, "update", {"g": 3})], [3, 3, 3])
def test_chunks_of_different_times_and_the_changes_after_each_make_the_source_field_by_field(
    changes: list[Change], times: list[int]
) -> None:
    states, events = history(changes)
    at = [min(time, len(events)) for time in times]
    copied_filter = CopiedFilter(CopiedRanges.of([bound(1), bound(2), None], [chunk(time, time) for time in at]))
    target = {
        number: dict(states[at[min(number, 2)]][number]) for number in KEYS if number in states[at[min(number, 2)]]
    }
    for time, change in enumerate(events, start=1):
        if copied_filter.overlap(key(change.key), time) is not Overlap.HELD:
            apply(target, change, replay=False)
    assert ordered(target) == ordered(states[-1])


@settings(max_examples=200)
@given(
    st.lists(st.one_of(puts, deletes, sets, unsets), max_size=12),
    st.integers(0, 12),
    st.lists(st.integers(0, 12), min_size=4, max_size=4),
)
def test_a_chunk_read_without_a_snapshot_comes_right_by_replaying_what_happened_meanwhile(
    changes: list[Change], after: int, spread: list[int]
) -> None:
    """Each document is read at its own moment between the two times."""
    states, events = history(changes)
    after = min(after, len(events))
    read_at = [min(after + later, len(events)) for later in spread]
    copied_filter = CopiedFilter(CopiedRanges.of([None], [chunk(after, max(read_at))]))
    target = {number: dict(states[at][number]) for number, at in enumerate(read_at) if number in states[at]}
    for time, change in enumerate(events, start=1):
        overlap = copied_filter.overlap(key(change.key), time)
        if overlap is not Overlap.HELD:
            apply(target, change, replay=overlap is Overlap.REPLAYED)
    assert target == states[-1]


def test_replaying_all_of_the_history_on_a_copy_would_reorder_fields() -> None:
    states, events = history(
        [Change(0, "update", unset="f"), Change(0, "update", {"f": 2}), Change(0, "update", {"g": 3})]
    )
    replayed = {0: dict(states[-1][0])}
    for change in events:
        apply(replayed, change, replay=True)
    assert replayed[0] == states[-1][0]
    assert list(replayed[0]) != list(states[-1][0])


def test_changes_of_chunks_not_copied_yet_are_held_until_they_are() -> None:
    copied_filter = CopiedFilter(CopiedRanges.of([bound(10), None], [chunk(4, 6), None]))
    fates = [
        copied_filter.overlap(key(value), time)
        for value, time in ((3, 4), (3, 5), (3, 6), (3, 7), (10, 7), (12, 2**63))
    ]
    assert fates == [Overlap.HELD, Overlap.REPLAYED, Overlap.REPLAYED, Overlap.NEW, Overlap.HELD, Overlap.HELD]


@settings(max_examples=200)
@given(
    st.lists(st.one_of(puts, deletes, sets, unsets), max_size=12),
    *(3 * [st.integers(0, 12)]),
)
def test_what_a_lost_attempt_left_goes_with_its_delete_though_nothing_is_cleared(
    changes: list[Change], lost: int, ddl: int, read: int
) -> None:
    """The table goes to a DDL while a chunk is missing of which an attempt was lost. Then the chunk is read, and all changes are replayed."""
    states, events = history(changes)
    lost, ddl, read = (min(moment, len(events)) for moment in (lost, ddl, max(lost, ddl, read)))
    target = {number: dict(row) for number, row in states[lost].items()}

    def go(copied: CopiedChunk | None, begin: int, end: int) -> None:
        copied_filter = CopiedFilter(replace(CopiedRanges.of([None], [copied]), uncleared=True))
        for time, change in enumerate(events[begin:end], start=begin + 1):
            kind = RowType.DELETE if change.kind == "delete" else RowType.UPDATE
            if copied_filter.of(RowChange(_TABLE, kind, key(change.key), None, None, time, b"")) is not Overlap.HELD:
                apply(target, change, replay=True)

    go(None, 0, ddl)
    target |= {number: dict(row) for number, row in states[read].items()}
    go(chunk(0, read), ddl, len(events))
    assert target == states[-1]


def test_keys_of_all_types_are_found_in_the_order_in_which_the_server_keeps_them() -> None:
    ascending: list[Any] = [
        MinKey(),
        None,
        float("-inf"),
        -5,
        Decimal128("-4.5"),
        2**53,
        2**53 + 1,
        "",
        "Z",
        "a",
        {"a": 1},
        {"$ref": "x", "$id": 1},
        b"a",
        b"bb",
        ObjectId("0" * 24),
        ObjectId("f" * 24),
        False,
        True,
        DatetimeMS(-(2**60)),
        DatetimeMS(0),
        DatetimeMS(2**60),
        MaxKey(),
    ]
    copied_filter = CopiedFilter(
        CopiedRanges.of([*map(bound, ascending), None], [chunk(at, at) for at in range(1, len(ascending) + 2)])
    )
    for place, value in enumerate(ascending, start=2):
        assert copied_filter.overlap(key(value), place) is Overlap.HELD, value
        assert copied_filter.overlap(key(value), place + 1) is Overlap.NEW, value
    assert copied_filter.overlap(key(-5.0), 5) is Overlap.HELD
    assert copied_filter.overlap(key(DBRef("x", 1)), 13) is Overlap.HELD


def test_a_key_beside_shard_key_fields_is_found_by_its_id() -> None:
    copied_filter = CopiedFilter(CopiedRanges.of([bound(10), None], [chunk(4, 4), chunk(8, 8)]))
    assert copied_filter.overlap(bson.encode({"region": "eu", "_id": 11}), 6) is Overlap.HELD
    assert copied_filter.overlap(bson.encode({"region": "eu", "_id": 9}), 6) is Overlap.NEW


def test_ranges_travel_to_tasks() -> None:
    ranges = CopiedRanges.of([bound(10), None], [chunk(4, 6), None])
    assert pickle.loads(pickle.dumps(ranges)) == ranges
