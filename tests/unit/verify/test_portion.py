"""A pass reads each range once, whoever goes on with it, and however the table is divided then."""

from __future__ import annotations

import bson
from hypothesis import given
from hypothesis import strategies as st

from changefeed.records.sync_point import PassPlace
from changefeed.table import TableName
from verify.portion import Portion
from verify.table_reader import IdRange, ranges_between

A, B = TableName("shop", "a"), TableName("shop", "b")


def portion(
    place: PassPlace | None, *, begun: int = 0, over: bool = False, ranges: tuple[IdRange, ...] = ()
) -> Portion:
    deadline = 0.0 if over else float("inf")
    return Portion(deadline=deadline, place=place, begun=begun, ranges=ranges)


def divided(bounds: list[int]) -> list[IdRange]:
    return list(ranges_between([bson.encode({"_id": bound}) for bound in sorted(set(bounds))]))


def keys_of(ranges: list[IdRange]) -> list[int]:
    """Of the keys from 0 to 99, in the order in which the ranges are read: from the end of the list."""
    found: list[int] = []
    for each in reversed(ranges):
        low = bson.decode(each.low)["_id"] if each.low is not None else 0
        high = bson.decode(each.high)["_id"] if each.high is not None else 100
        found += range(low, high)
    return found


bounds = st.lists(st.integers(1, 99), max_size=8)


@given(bounds, bounds, st.integers(0, 8))
def test_another_owner_reads_what_is_left_once_though_the_table_is_divided_anew(
    first: list[int], then: list[int], done: int
) -> None:
    ranges = portion(None).of(A, lambda: divided(first))
    read = [ranges.pop() for _ in range(min(done + 1, len(ranges)))]
    if not ranges:
        return
    early = portion(None, begun=1, over=True)
    assert early.ends(A, ranges)
    rest = portion(early.left).of(A, lambda: divided(then))
    assert keys_of(list(reversed(read))) + keys_of(rest) == list(range(100))


def test_a_part_has_at_least_one_range_though_its_time_is_over() -> None:
    late = portion(None, over=True)
    assert not late.ends(A, divided([10]))
    late.begun += 1
    assert late.ends(A, divided([10]))
    assert late.ends(B), "nothing is read past the place where it has ended"
    assert late.left is not None
    assert late.left.table == A


def test_the_ranges_that_are_known_to_be_left_are_those_of_their_table_alone() -> None:
    known = (IdRange(bson.encode({"_id": 5}), None),)
    part = portion(PassPlace(table=A, key=""), ranges=known)
    assert part.of(A, lambda: divided([1])) == list(known)
    assert part.of(B, lambda: divided([50])) == list(reversed(divided([50])))


def test_names_are_those_after_the_first_up_to_the_second() -> None:
    part = Portion(names=(A, B), deadline=0.0)
    assert [part.within(name) for name in (A, B, TableName("shop", "c"))] == [False, True, False]
