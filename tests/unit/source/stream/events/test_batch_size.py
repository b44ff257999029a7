"""How many events a stream is asked for follows from the time that its replies take."""

from __future__ import annotations

from source.stream.events.batch_size import BatchSize


def test_silence_turns_to_steps_and_then_to_one_go_and_is_then_waited_for() -> None:
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
