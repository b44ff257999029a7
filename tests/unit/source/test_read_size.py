"""How much of the oplog one read scans.

The number of requested events follows from the time of the replies.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from source.read_size import BatchSize, Stride

times = st.builds(ClusterTime, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
strides = st.builds(Stride, st.integers(1, 2**31))


@given(times, times, strides)
def test_a_stride_goes_on_and_never_beyond_the_end(one: ClusterTime, other: ClusterTime, stride: Stride) -> None:
    start_ts, end_ts = sorted((one, other))
    reached = stride.end_of(start_ts, end_ts)
    assert reached <= end_ts
    assert reached > start_ts or reached == end_ts or start_ts.seconds == 2**32 - 1


def test_a_read_is_made_shorter_until_it_is_short_and_longer_while_it_is_quick() -> None:
    stride = Stride(60)
    assert stride.after(0.1).seconds == 120
    assert stride.after(1.0) == stride
    assert stride.after(3.0).seconds == 30
    for _ in range(10):
        stride = stride.given_up()
    assert stride.seconds == 1


def test_without_answers_the_reader_uses_steps_then_one_long_read() -> None:
    size = BatchSize()
    assert not size.too_slow(2.9)
    assert size.too_slow(3.1)
    assert (size.in_steps, size.events) == (True, 1)
    assert not size.too_slow(14.0)
    assert size.too_slow(16.0)
    assert not size.in_steps
    assert not size.too_slow(10_000.0)


def test_steps_grow_where_they_are_quick_and_shrink_where_they_are_slow() -> None:
    size = BatchSize()
    size.too_slow(3.1)
    grown = []
    for took in (0.01, 0.01, 0.01, 0.5, 2.0):
        size.answered(took)
        grown.append(size.events)
    assert grown == [2, 4, 8, 8, 2]
    for _ in range(20):
        size.answered(0.01)
    assert not size.in_steps


def test_another_stream_may_find_heartbeats_again() -> None:
    size = BatchSize()
    assert size.too_slow(4.0)
    assert size.too_slow(16.0)
    size.opened()
    assert size.too_slow(4.0)
