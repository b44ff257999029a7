"""The outcome of a window that several tasks have applied."""

from __future__ import annotations

from datetime import UTC, datetime

from changefeed.cluster_time import ClusterTime
from changefeed.errors import RowRejected, SinkUnavailable
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.table import TableId
from processor.task.job import JobOutcome, together
from sink.receipt import Receipt
from sink.row import WriteResult

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
