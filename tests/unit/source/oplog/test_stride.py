"""How much of the oplog one read scans."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from source.oplog.stride import Stride

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
