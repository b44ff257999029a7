"""A packed set of tables and its difference, against a plain set.

The outcome of a window that several tasks have applied.
"""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.errors import RowRejected, SinkUnavailable
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.table import TableId
from processor.task.job import JobOutcome, TableSet, together
from schema_store.schema_base import NO_TEXTS
from sink.receipt import Receipt
from sink.row import WriteResult

_SETS = st.frozensets(st.integers(0, 200).map(lambda number: TableId(f"{number:04x}")), max_size=200)


@given(st.lists(_SETS, min_size=1, max_size=6))
def test_a_set_that_changes_contains_what_a_plain_one_does(stages: list[frozenset[TableId]]) -> None:
    before, packed = frozenset[TableId](), TableSet()
    for now in stages:
        packed = packed.changed(before - now, now - before)
        assert set(packed) == now
        assert sorted(packed) == sorted(now)
        assert len(packed) == len(now)
        assert bool(packed) == bool(now)
        before = now
    sent = pickle.loads(pickle.dumps(packed.over(NO_TEXTS)))
    assert sent.over(packed.base) == packed


def test_few_changes_leave_the_base_and_many_replace_it() -> None:
    base = TableSet.of(TableId(f"{number:04x}") for number in range(10_000))
    few = base.changed({TableId("0001")}, {TableId("new")})
    assert few.base is base.base
    many = few.changed({TableId(f"{number:04x}") for number in range(500)}, set())
    assert many.base is not base.base
    assert not many.without
    assert not many.beside


A, B = TableId("a"), TableId("b")
NOW = datetime(2026, 11, 21, tzinfo=UTC)
PASSING, LASTING = (ErrorReport.of(error, NOW) for error in (SinkUnavailable("away"), RowRejected("of 7")))


def at(increment: int) -> Position:
    return Position(ClusterTime(100, increment))


def test_a_window_ends_where_its_first_bucket_ended() -> None:
    """What the others have applied after that is replayed."""
    outcome = together([JobOutcome(ended=at(8)), JobOutcome(ended=at(5)), JobOutcome()])
    assert (outcome.ended, outcome.uneven) == (at(5), True)


def test_a_window_whose_buckets_ended_together_is_even() -> None:
    assert together([JobOutcome(), JobOutcome()]) == JobOutcome()
    outcome = together([JobOutcome(ended=at(5)), JobOutcome(ended=at(5))])
    assert (outcome.ended, outcome.uneven) == (at(5), False)


def test_an_error_that_lasts_is_not_hidden_by_one_that_passes() -> None:
    for parts in ([PASSING, LASTING], [LASTING, PASSING], [None, LASTING], [LASTING, None]):
        assert together([JobOutcome(error=error) for error in parts]).error == LASTING
    assert together([JobOutcome(), JobOutcome(error=PASSING)]).error == PASSING


def test_everything_that_a_bucket_says_of_its_rows_counts() -> None:
    files = [Receipt(name=name, rows=1, bytes=1, crc32=0) for name in "xy"]
    times = [ClusterTime(100, increment) for increment in (1, 2, 3)]
    outcome = together(
        [
            JobOutcome(rows=WriteResult(unsettled={A}, ahead={A: times[2], B: times[0]}, receipts=files[:1])),
            JobOutcome(rows=WriteResult(unsettled={B}, ahead={A: times[1]}, receipts=files[1:])),
        ]
    )
    assert outcome.rows.unsettled == {A, B}
    assert outcome.rows.ahead == {A: times[2], B: times[0]}
    assert outcome.rows.receipts == files
