"""Rows between two watermarks: each once, in order, and forgotten table by table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from sink.messages.kafka.topic_reader import HeldRow, HeldRows


@pytest.fixture
def held() -> Iterator[HeldRows]:
    with closing(HeldRows()) as rows:
        yield rows


def _row(pos: str, table: str = "a", key: str = "k", offset: int = 0, *, copied: bool = False) -> HeldRow:
    return HeldRow(pos, table, key.encode(), copied, "version", "t/0", offset, b"raw")


def test_a_repeat_is_dropped_and_the_place_of_the_first_one_stays(held: HeldRows) -> None:
    held.add([_row("5", offset=3), _row("2", offset=9), _row("5", offset=11), _row("5", key="other", offset=12)])
    assert [(row.pos, row.key) for row in held.before("9")] == [("2", b"k"), ("5", b"k"), ("5", b"other")]
    assert held.first_offsets() == {"t/0": 3}


def test_rows_at_the_watermark_stay(held: HeldRows) -> None:
    held.add([_row("4"), _row("5"), _row("6")])
    assert [row.pos for row in held.before("5")] == ["4"]
    held.forget("5", "4", {})
    assert [row.pos for row in held.before("9")] == ["5", "6"]


def test_tables_that_are_behind_keep_their_rows(held: HeldRows) -> None:
    held.add([_row("3", "a"), _row("3", "b"), _row("1", "b")])
    held.forget("5", "4", {"b": ("2", "1")})
    assert [(row.pos, row.table) for row in held.before("9")] == [("3", "b")]
    held.forget("5", "4", {})
    assert list(held.before("9")) == []


def test_copied_documents_have_a_bound_of_their_own(held: HeldRows) -> None:
    held.add([_row("4", copied=True), _row("4", "b"), _row("3", copied=True), _row("4", "c", copied=True)])
    held.forget("5", "4", {"c": ("4", "3")})
    assert [(row.pos, row.table) for row in held.before("9")] == [("4", "a"), ("4", "c")]


def test_the_first_offset_of_what_is_held_is_known_by_partition(held: HeldRows) -> None:
    held.add([_row("1", offset=1), _row("2", offset=2), _row("3", offset=3)])
    held.forget("3", "2", {})
    assert held.first_offsets() == {"t/0": 3}
    assert [row.offset for row in held.before("9")] == [3]
