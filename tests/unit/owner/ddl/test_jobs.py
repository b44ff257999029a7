"""A successor waits for the commands that its predecessor has in flight."""

from __future__ import annotations

import threading

from changefeed.records.requests import ChangefeedId
from owner.ddl.jobs import InFlightDdl
from tests.until import PATIENCE_SECONDS

_FEED, _OTHER = ChangefeedId("feed"), ChangefeedId("other")


def _long() -> float:
    return 60.0


class Caller:
    """A job with one call, which lasts until the test ends it."""

    def __init__(self, under_way: InFlightDdl, changefeed: ChangefeedId) -> None:
        self.begun, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._call, args=(under_way, changefeed), daemon=True)
        self._thread.start()

    def _call(self, under_way: InFlightDdl, changefeed: ChangefeedId) -> None:
        with under_way.call(changefeed, self):
            self.begun.set()
            self._end.wait(PATIENCE_SECONDS)

    def end(self) -> None:
        self._end.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_a_call_waits_for_those_of_the_changefeeds_earlier_jobs() -> None:
    under_way = InFlightDdl(_long)
    earlier = Caller(under_way, _FEED)
    assert earlier.begun.wait(PATIENCE_SECONDS)
    later, elsewhere = Caller(under_way, _FEED), Caller(under_way, _OTHER)
    assert elsewhere.begun.wait(PATIENCE_SECONDS)
    assert not later.begun.is_set()
    earlier.end()
    assert later.begun.wait(PATIENCE_SECONDS)
    later.end()
    elsewhere.end()


def test_nobody_waits_for_what_can_no_longer_do_anything() -> None:
    under_way = InFlightDdl(lambda: 0.0)
    earlier = Caller(under_way, _FEED)
    assert earlier.begun.wait(PATIENCE_SECONDS)
    with under_way.call(_FEED, object()):
        earlier.end()


def test_calls_of_the_same_jobs_go_on_side_by_side() -> None:
    under_way, jobs = InFlightDdl(_long), object()
    with under_way.call(_FEED, jobs), under_way.call(_FEED, jobs):
        pass


def test_an_end_waits_until_none_is_left_or_none_can_be() -> None:
    under_way = InFlightDdl(_long)
    caller = Caller(under_way, _FEED)
    assert caller.begun.wait(PATIENCE_SECONDS)
    under_way.wait(0.0)
    assert caller.begun.is_set()
    waiting = threading.Thread(target=under_way.wait, args=(60.0,), daemon=True)
    waiting.start()
    caller.end()
    waiting.join(PATIENCE_SECONDS)
    assert not waiting.is_alive()
