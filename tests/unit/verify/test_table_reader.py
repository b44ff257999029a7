from __future__ import annotations

from verify.table_reader import EVERYTHING, IdRange, ranges_between


def test_ranges_meet_and_have_open_ends() -> None:
    assert ranges_between([b"1", b"2"]) == (IdRange(None, b"1"), IdRange(b"1", b"2"), IdRange(b"2", None))


def test_without_splits_there_is_one_range_of_everything() -> None:
    assert ranges_between([]) == (EVERYTHING,)
