"""A sink is swept at the start of a term and now and then after it; who is gone is what etcd says."""

from __future__ import annotations

from changefeed.errors import SinkUnavailable
from changefeed.records.requests import ChangefeedId
from owner.deployments.leftovers import Gone, Leftovers
from tests.unit.owner.deployments.at_once import AtOnce


class _Sink:
    def __init__(self) -> None:
        self.swept: list[list[int]] = []
        self.away = False

    def sweep(self, gone: Gone) -> int:
        if self.away:
            raise SinkUnavailable("away")
        self.swept.append([epoch for epoch in range(5) if gone(epoch)])
        return 0


class _Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def _leftovers(sink: _Sink | None, background: AtOnce, clock: _Clock) -> Leftovers:
    return Leftovers(ChangefeedId("f"), background, sink, monotonic=clock)  # type: ignore[arg-type]  # has the one method that is called


def test_a_sink_is_swept_at_once_and_every_ten_minutes() -> None:
    sink, clock = _Sink(), _Clock()
    leftovers = _leftovers(sink, AtOnce(), clock)
    for _ in range(3):
        leftovers.look(lambda epoch: epoch < 2)
        clock.now += 1
    assert sink.swept == [[0, 1]]
    clock.now += 600
    leftovers.look(lambda epoch: epoch < 3)
    assert sink.swept == [[0, 1], [0, 1, 2]]


def test_a_slow_sweep_is_waited_for_without_a_wait() -> None:
    sink, background, clock = _Sink(), AtOnce(), _Clock()
    leftovers = _leftovers(sink, background, clock)
    background.slow = True
    leftovers.look(lambda _: True)
    background.slow = False
    leftovers.look(lambda _: False)
    leftovers.look(lambda _: False)
    assert len(sink.swept) == 1


def test_a_sink_that_is_away_is_swept_later() -> None:
    sink, clock = _Sink(), _Clock()
    leftovers = _leftovers(sink, AtOnce(), clock)
    sink.away = True
    leftovers.look(lambda _: False)
    sink.away = False
    leftovers.look(lambda _: False)
    assert sink.swept == []
    clock.now += 600
    leftovers.look(lambda _: False)
    assert sink.swept == [[]]


def test_a_sink_that_keeps_nothing_uncommitted_is_left_alone() -> None:
    _leftovers(None, AtOnce(), _Clock()).look(lambda _: True)
