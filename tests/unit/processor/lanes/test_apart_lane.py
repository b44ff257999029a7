"""The share of a slow lane, window by window."""

from __future__ import annotations

import pytest

from processor.lanes.apart_lane import FIRST, STILL_EVERY, SinkShare, rest_after


def after(share: SinkShare, *, alone: float | None = None, beside: float | None = None, count: int = 10) -> SinkShare:
    """After a window during which, and before which, small writes waited so many milliseconds each."""
    if alone is not None:
        share = share.seen(count, count * alone / 1e3, beside=False)
    if beside is not None:
        share = share.seen(count, count * beside / 1e3, beside=True)
    return share.after_window()


def test_a_lane_that_harms_nobody_gets_the_sink_for_itself() -> None:
    share = SinkShare()
    assert share.share == FIRST
    for _ in range(30):
        share = after(share, alone=2.0, beside=2.1)
    assert share.share == 1.0


def test_a_lane_beside_which_others_wait_longer_gets_less_and_less_but_never_nothing() -> None:
    shares = [SinkShare(share=1.0)]
    for _ in range(20):
        shares.append(after(shares[-1], alone=2.0, beside=6.0))
    assert [each.share for each in shares[:3]] == pytest.approx([1.0, 0.6, 0.36])
    assert shares[-1].share == 0.03


def test_a_small_difference_changes_nothing() -> None:
    assert after(SinkShare(share=0.5), alone=2.0, beside=2.3).share == 0.5


def test_a_target_that_is_slow_for_all_is_not_the_lanes_fault() -> None:
    share = after(SinkShare(share=0.5), alone=2.0, beside=2.3)
    for _ in range(30):
        share = after(share, alone=20.0, beside=21.0)
    assert share.share == 1.0


def test_where_nobody_else_writes_the_lane_need_not_rest() -> None:
    share = SinkShare()
    for expected in (0.2, 0.4, 0.8, 1.0, 1.0):
        share = share.after_window()
        assert share.share == expected


def test_what_was_not_compared_changes_nothing() -> None:
    assert after(SinkShare(share=0.5), beside=9.0).share == 0.5, "the lane has not stood still yet"
    few = after(SinkShare(share=0.5, alone=0.002), beside=9.0, count=2)
    assert few.share == 0.5, "a few waits say nothing"
    assert after(few, beside=9.0).share == 0.3, "the last comparison is still good"


def test_a_lane_stands_still_after_its_first_window_and_every_few_windows() -> None:
    share, still = SinkShare(), []
    for _ in range(2 * STILL_EVERY):
        share = share.after_window()
        still.append(share.stands_still)
    assert still == 2 * [True, *[False] * (STILL_EVERY - 1)]


def test_a_lane_that_the_others_leave_no_more_than_the_least_has_settled_until_that_changes() -> None:
    """Then its windows are long, so it stands still after each."""
    share, settled = SinkShare(), []
    for beside in [9.0] * 7 + [2.0] + [9.0] * 4:
        share = after(share, alone=2.0, beside=beside)
        settled.append(share.settled)
        assert share.stands_still or not share.settled
    assert settled == [*[False] * 5, True, True, False, *[False] * 3, True]
    assert not after(share).settled, "nobody else writes"


def test_the_rest_after_a_command_leaves_the_sink_to_others_for_their_part() -> None:
    assert rest_after(0.004, 0.25) == pytest.approx(0.012)
    assert rest_after(0.004, 1.0) == 0
    assert rest_after(3.0, 0.1) == 0.25, "a task may have to end"
