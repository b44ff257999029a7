"""The number of requested events follows from the time of the replies."""

from __future__ import annotations

from source.stream.events.batch_size import BatchSize


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
