from __future__ import annotations

from changefeed.records.copy import CopyRate
from changefeed.table import TableSize
from processor.copy.table_copy import CopyPace

CHUNK = TableSize(documents=1_000, bytes=64_000_000)


def after(pace: CopyPace, *ends: float) -> CopyPace:
    for at in ends:
        pace = pace.after(CHUNK, at)
    return pace


def test_there_is_no_rate_before_a_chunk_has_ended() -> None:
    assert CopyPace.begun(5.0).rate is None


def test_the_rate_is_that_of_the_chunks_until_now() -> None:
    assert after(CopyPace.begun(0), 10, 20, 30).rate == CopyRate(documents=100, bytes=6_400_000)


def test_a_gap_counts_and_is_forgotten() -> None:
    slow = after(CopyPace.begun(0), 10, 20, 30, 200)
    assert slow.rate == CopyRate(documents=5.9, bytes=376_470.6)
    assert after(slow, 210, 220, 230, 240, 250, 260, 270).rate == CopyRate(documents=100, bytes=6_400_000)


def test_chunks_that_end_at_once_count_together() -> None:
    assert after(CopyPace.begun(0), 2, 2, 2, 2).rate == CopyRate(documents=2_000, bytes=128_000_000)


def test_many_small_tables_need_little_memory() -> None:
    pace = after(CopyPace.begun(0), *(number / 100 for number in range(1, 100_001)))
    assert len(pace.ends) < 150
    assert pace.rate is not None
    assert abs(pace.rate.documents - 100_000) < 1_000
