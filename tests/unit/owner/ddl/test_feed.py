"""The feed shares one watch, and no subscriber misses an event or sees it twice."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost, InvariantError, SluiceError, SourceMajorityStalled, SourceUnavailable
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from owner.ddl.feed import DdlFeed, Subscription
from owner.ddl.sightings import Sighting
from source.ddl_watch import DdlBatch
from tests.until import until


def at(increment: int) -> Position:
    return Position(ClusterTime(100, increment))


def drop(increment: int) -> DdlEvent:
    return DdlEvent(position=at(increment), type=DdlType.DROP, db="shop")


_END = at(99)


def batch_of(
    events: tuple[DdlEvent, ...],
    resolved: Position,
    trouble: SluiceError | None = None,
    end: Position = _END,
) -> DdlBatch:
    return DdlBatch(events=events, resolved=resolved, end=end, trouble=trouble)


class ScriptedWatch(nullcontext["ScriptedWatch"]):
    """Returns the items that the test puts in; raises the errors among them."""

    def __init__(self) -> None:
        super().__init__(self)
        self.script: queue.Queue[DdlBatch | Exception] = queue.Queue()
        self.resolved = at(0)
        self.trouble: SluiceError | None = None
        self.end = _END

    def poll(self) -> DdlBatch:
        try:
            item = self.script.get(timeout=0.02)
        except queue.Empty:
            return batch_of((), self.resolved, self.trouble, self.end)
        if isinstance(item, Exception):
            raise item
        self.resolved, self.trouble, self.end = item.resolved, item.trouble, item.end
        return item

    def close(self) -> None: ...


class Source:
    def __init__(self) -> None:
        self.opened: list[tuple[Position, ScriptedWatch]] = []

    def open(self, start: Position) -> ScriptedWatch:
        watch = ScriptedWatch()
        watch.resolved = start
        self.opened.append((start, watch))
        return watch

    def starts(self) -> list[Position]:
        return [start for start, _ in self.opened]


@contextmanager
def feed() -> Iterator[tuple[DdlFeed, Source]]:
    source = Source()
    shared = DdlFeed(source.open)
    try:
        yield shared, source
    finally:
        shared.close()


def seen_until(subscription: Subscription, resolved: Position) -> list[int]:
    found: list[int] = []

    def there() -> bool:
        taken = subscription.take()
        found.extend(event.position.ts.increment for event in taken.events)
        return taken.resolved >= resolved

    until(there)
    return found


def test_two_changefeeds_share_one_watch_and_each_sees_its_own_range() -> None:
    with feed() as (shared, source):
        first = shared.subscribe(at(5))
        until(lambda: len(source.opened) == 1)
        second = shared.subscribe(at(8))
        source.opened[0][1].script.put(batch_of((drop(6), drop(9)), at(10)))
        assert seen_until(first, at(10)) == [6, 9]
        assert seen_until(second, at(10)) == [9]
        assert source.starts() == [at(5)]


def test_a_changefeed_is_told_once_what_the_source_had_committed_when_it_was_asked() -> None:
    with feed() as (shared, source):
        before = datetime.now(UTC)
        subscription = shared.subscribe(at(5))
        until(lambda: len(source.opened) == 1)
        source.opened[0][1].script.put(batch_of((), at(7), end=at(8)))
        sightings: list[Sighting] = []

        def told() -> bool:
            sighting = subscription.take().sighting
            sightings.extend([sighting] if sighting else [])
            return sighting is not None and sighting.end == at(8)

        until(told)
        assert before <= sightings[-1].at <= datetime.now(UTC)
        shared.close()
        subscription.take()
        assert subscription.take().sighting is None


def test_an_event_at_the_resolved_position_is_not_given_out_yet() -> None:
    with feed() as (shared, source):
        subscription = shared.subscribe(at(5))
        until(lambda: len(source.opened) == 1)
        source.opened[0][1].script.put(batch_of((drop(7),), at(7)))
        assert seen_until(subscription, at(7)) == []
        source.opened[0][1].script.put(batch_of((), at(8)))
        assert seen_until(subscription, at(8)) == [7]


def test_a_changefeed_that_joins_is_told_of_what_was_shown_and_not_resolved() -> None:
    with feed() as (shared, source):
        first = shared.subscribe(at(5))
        until(lambda: len(source.opened) == 1)
        source.opened[0][1].script.put(batch_of((drop(9),), at(8)))
        assert seen_until(first, at(8)) == []
        second = shared.subscribe(at(8))
        source.opened[0][1].script.put(batch_of((), at(10)))
        assert seen_until(second, at(10)) == [9]
        assert seen_until(first, at(10)) == [9]


def test_one_that_has_caught_up_is_told_of_what_the_other_was_shown_and_not_resolved() -> None:
    with feed() as (shared, source):
        shared.subscribe(at(8))
        until(lambda: len(source.opened) == 1)
        source.opened[0][1].script.put(batch_of((drop(20),), at(10)))
        behind = shared.subscribe(at(5))
        until(lambda: len(source.opened) == 2)
        source.opened[1][1].script.put(batch_of((), at(10)))
        assert seen_until(behind, at(10)) == []
        until(lambda: shared.runners == 1)
        source.opened[0][1].script.put(batch_of((), at(30)))
        assert seen_until(behind, at(30)) == [20]


def test_a_changefeed_that_begins_now_does_not_wait_for_one_that_is_catching_up() -> None:
    with feed() as (shared, source):
        shared.subscribe(at(5))
        until(lambda: len(source.opened) == 1)
        shared.subscribe(Position(ClusterTime(3700, 1)))
        until(lambda: len(source.opened) == 2)
        assert source.starts()[1] == Position(ClusterTime(3700, 1))


def test_a_watch_that_breaks_in_an_unforeseen_way_says_so() -> None:
    with feed() as (shared, source):
        subscription = shared.subscribe(at(5))
        until(lambda: len(source.opened) == 1)
        source.opened[0][1].script.put(KeyError("unforeseen"))
        until(lambda: isinstance(subscription.take().error, InvariantError))


def test_a_changefeed_that_is_behind_reads_alone_until_it_has_caught_up() -> None:
    with feed() as (shared, source):
        ahead = shared.subscribe(at(50))
        until(lambda: len(source.opened) == 1)
        behind = shared.subscribe(at(5))
        until(lambda: len(source.opened) == 2)
        shared_watch, own_watch = source.opened[0][1], source.opened[1][1]
        own_watch.script.put(batch_of((drop(6),), at(30)))
        assert seen_until(behind, at(30)) == [6]
        assert seen_until(ahead, at(50)) == []
        own_watch.script.put(batch_of((drop(40), drop(55)), at(60)))
        assert seen_until(behind, at(60)) == [40, 55]
        shared_watch.script.put(batch_of((drop(55), drop(61)), at(70)))
        assert seen_until(ahead, at(70)) == [55, 61]
        assert seen_until(behind, at(70)) == [61]


def test_a_broken_watch_opens_again_where_it_was_and_repeats_nothing() -> None:
    with feed() as (shared, source):
        subscription = shared.subscribe(at(5))
        until(lambda: len(source.opened) == 1)
        source.opened[0][1].script.put(batch_of((drop(6), drop(9)), at(8)))
        assert seen_until(subscription, at(8)) == [6]
        source.opened[0][1].script.put(SourceUnavailable("gone", retry_after=timedelta(milliseconds=1)))
        until(lambda: len(source.opened) == 2)
        assert source.starts()[1] == at(8)
        source.opened[1][1].script.put(batch_of((drop(9),), at(12)))
        assert seen_until(subscription, at(12)) == [9]


def test_an_error_is_shown_until_the_watch_is_well_again() -> None:
    with feed() as (shared, source):
        subscription = shared.subscribe(at(5))
        until(lambda: len(source.opened) == 1)
        source.opened[0][1].script.put(SourceUnavailable("gone", retry_after=timedelta(milliseconds=200)))
        until(lambda: subscription.take().error is not None)
        until(lambda: len(source.opened) == 2)
        source.opened[1][1].script.put(batch_of((), at(9)))
        assert seen_until(subscription, at(9)) == []
        assert subscription.take().error is None


def test_lost_history_ends_the_watch_and_a_new_subscription_opens_another() -> None:
    with feed() as (shared, source):
        lost = shared.subscribe(at(5))
        until(lambda: len(source.opened) == 1)
        source.opened[0][1].script.put(HistoryLost("oldest is 100.90"))
        until(lambda: isinstance(lost.take().error, HistoryLost))
        assert shared.runners == 0, "a watch that has ended is none that others may join"
        lost.close()
        shared.subscribe(at(95))
        until(lambda: len(source.opened) == 2)
        assert source.starts() == [at(5), at(95)]


def test_the_last_one_to_leave_ends_the_watch() -> None:
    with feed() as (shared, source):
        subscription = shared.subscribe(at(5))
        until(lambda: len(source.opened) == 1)
        subscription.close()
        shared.subscribe(at(5))
        until(lambda: len(source.opened) == 2)


def test_why_a_watch_that_is_well_does_not_get_on_is_told_for_as_long_as_that_lasts() -> None:
    with feed() as (shared, source):
        subscription = shared.subscribe(at(5))
        until(lambda: len(source.opened) == 1)
        stalled = SourceMajorityStalled("the majority has not moved")
        source.opened[0][1].script.put(batch_of((), at(6), stalled))
        until(lambda: subscription.take().error is stalled)
        source.opened[0][1].script.put(batch_of((), at(7)))
        until(lambda: subscription.take().error is None)
        assert source.starts() == [at(5)]


def test_a_changefeed_is_woken_when_resolved_moves_and_only_then() -> None:
    woken: list[None] = []
    with feed() as (shared, source):
        subscription = shared.subscribe(at(5), lambda: woken.append(None))
        until(lambda: len(source.opened) == 1)
        for resolved in (5, 7, 7, 9):
            source.opened[0][1].script.put(batch_of((), at(resolved), end=at(resolved)))
        assert seen_until(subscription, at(9)) == []
        until(lambda: len(woken) == 2)


def test_a_ddl_that_a_reopened_watch_shows_again_is_seen_once_by_who_joins_then() -> None:
    with feed() as (shared, source):
        first = shared.subscribe(at(5))
        until(lambda: len(source.opened) == 1)
        script = source.opened[0][1].script
        script.put(batch_of((drop(6),), at(5)))
        script.put(SourceUnavailable("the connection broke"))
        until(lambda: len(source.opened) == 2)
        script = source.opened[1][1].script
        script.put(batch_of((drop(6),), at(5), end=at(98)))
        until(lambda: (sighting := first.take().sighting) is not None and sighting.end == at(98))
        second = shared.subscribe(at(5))
        script.put(batch_of((), at(10)))
        assert (seen_until(first, at(10)), seen_until(second, at(10))) == ([6], [6])


def test_an_answer_counts_for_the_moment_at_which_it_was_asked_for() -> None:
    """The source may have committed more while the answer was on its way."""
    asked: list[datetime] = []

    class Slow(ScriptedWatch):
        """Says in each answer which one it is."""

        def poll(self) -> DdlBatch:
            asked.append(datetime.now(UTC))
            while datetime.now(UTC) == asked[-1]:
                pass
            return batch_of((), at(5), end=at(len(asked)))

    def slow(_: Position) -> ScriptedWatch:
        return Slow()

    shared = DdlFeed(slow)
    try:
        subscription = shared.subscribe(at(5))
        sightings: list[Sighting] = []

        def there() -> bool:
            sighting = subscription.take().sighting
            sightings.extend([sighting] if sighting is not None else [])
            return bool(sightings)

        until(there)
        assert sightings[0].at <= asked[sightings[0].end.ts.increment - 1]
    finally:
        shared.close()
