"""`DdlFeed`: one DDL watch of a source, shared by its changefeeds.

A changefeed that starts further back than the shared watch, or well ahead of one that is catching up, gets a runner of its own. When one
runner has caught up with another, the two are merged. So a changefeed that resumes after a day does not delay the others.

A watch may show an event before it is resolved, and shows it only once. The runner remembers the unresolved events for changefeeds that
join it later:

    batch events [drop@9], resolved 8    the present subscriptions have drop@9 and wait until it is resolved
    a changefeed joins at 8              gets drop@9 from the runner; the watch will not show it again
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from changefeed.errors import InvariantError, RetryableError, SluiceError
from changefeed.event import DdlEvent
from changefeed.position import Position
from changefeed.source_history import SourceHistory
from credentials.redaction import redacted
from owner.ddl.sightings import Sighting
from source.ddl_watch import DdlBatch, DdlWatch

_log = structlog.get_logger()

_NEAR_SECONDS = 10
"""Of source time. A runner further behind is catching up: a new subscription would wait for events that it does not need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What arrived since the last call: no event below `resolved` is missing, and none is at or past it."""

    events: tuple[DdlEvent, ...]
    resolved: Position
    sighting: Sighting | None
    """What the source had committed, if it has answered since the last call."""
    history: SourceHistory | None = None
    """For windows that end at `resolved` or before."""
    error: SluiceError | None


class Subscription:
    """One changefeed's reading position in the feed."""

    def __init__(self, feed: DdlFeed, start: Position, moved: Callable[[], None]) -> None:
        self._feed = feed
        self._moved = moved
        self._lock = threading.Lock()
        self._resolved = start
        self._events: list[DdlEvent] = []
        self._sighting: Sighting | None = None
        self._history: SourceHistory | None = None
        self._error: SluiceError | None = None

    @property
    def resolved(self) -> Position:
        return self._resolved

    def take(self) -> Taken:
        """Never waits."""
        with self._lock:
            below = tuple(event for event in self._events if event.position < self._resolved)
            self._events = self._events[len(below) :]
            sighting, self._sighting = self._sighting, None
            return Taken(
                events=below, resolved=self._resolved, sighting=sighting, history=self._history, error=self._error
            )

    def close(self) -> None:
        self._feed.leave(self)

    def deliver(self, batch: DdlBatch, asked_at: datetime) -> None:
        with self._lock:
            self._add(batch.events)
            moved = batch.resolved > self._resolved
            self._resolved = max(self._resolved, batch.resolved)
            self._history = batch.history and batch.history.after(self._history)
            if batch.trouble is None:
                self._sighting = Sighting(batch.end, asked_at)
            self._error = batch.trouble
        if moved:
            self._moved()

    def join(self, shown: Iterable[DdlEvent]) -> None:
        """`shown`: the events that the runner has seen and that are not resolved yet."""
        with self._lock:
            self._add(shown)

    def _add(self, events: Iterable[DdlEvent]) -> None:
        last = self._events[-1].position if self._events else None
        self._events += [
            event for event in events if event.position >= self._resolved and (last is None or event.position > last)
        ]

    def fail(self, error: SluiceError) -> None:
        with self._lock:
            self._error = error


class DdlFeed:
    """`open_watch` opens a watch at a position; it is called, and the watch polled, in the runner's thread."""

    def __init__(self, open_watch: Callable[[Position], DdlWatch]) -> None:
        self._open_watch = open_watch
        self._lock = threading.Lock()
        self._runners: list[_Runner] = []

    def subscribe(self, start: Position, moved: Callable[[], None] = lambda: None) -> Subscription:
        """`moved` is called in the runner's thread when `resolved` has moved. It must return at once, for example after setting an event."""
        subscription = Subscription(self, start, moved)
        with self._lock:
            near = [runner for runner in self._runners if runner.alive and _near(runner.resolved, start)]
            if near:
                max(near, key=lambda runner: runner.resolved).join([subscription])
                return subscription
            runner = _Runner(self._open_watch, start, self._merge, self._fail)
            runner.join([subscription])
            self._runners.append(runner)
        runner.start()
        return subscription

    @property
    def runners(self) -> int:
        """How many watches are open at the source."""
        return len(self._runners)

    def leave(self, subscription: Subscription) -> None:
        with self._lock:
            for runner in list(self._runners):
                if subscription in runner.subscriptions:
                    runner.subscriptions.remove(subscription)
                    self._retire_if_idle(runner)

    def close(self) -> None:
        """Asks every runner to end, then waits for each; may be called twice."""
        with self._lock:
            runners, self._runners = self._runners, []
        for runner in runners:
            runner.stop()
        for runner in runners:
            runner.wait()

    def _merge(self, runner: _Runner, batch: DdlBatch, asked_at: datetime) -> None:
        """Hands the batch over. A runner that has caught up with another one then gives its subscriptions to that one."""
        with self._lock:
            before = runner.resolved
            runner.take(batch, asked_at)
            for other in self._runners:
                if other is not runner and other.alive and before < other.resolved <= runner.resolved:
                    other.join(runner.subscriptions)
                    runner.subscriptions.clear()
            self._retire_if_idle(runner)

    def _fail(self, runner: _Runner, error: SluiceError, ended: bool) -> None:
        """`ended`: the runner stops, and nobody joins it any more."""
        with self._lock:
            for subscription in runner.subscriptions:
                subscription.fail(error)
            if ended:
                runner.stop()
                if runner in self._runners:
                    self._runners.remove(runner)

    def _retire_if_idle(self, runner: _Runner) -> None:
        if not runner.subscriptions and runner in self._runners:
            self._runners.remove(runner)
            runner.stop()


def _near(resolved: Position, start: Position) -> bool:
    return resolved <= start and start.ts.seconds - resolved.ts.seconds <= _NEAR_SECONDS


class _Runner:
    """A thread with a watch. The feed's lock guards all public members except `start`, `stop`, `wait` and `alive`."""

    def __init__(
        self,
        open_watch: Callable[[Position], DdlWatch],
        start: Position,
        deliver: Callable[[_Runner, DdlBatch, datetime], None],
        fail: Callable[[_Runner, SluiceError, bool], None],
    ) -> None:
        self.subscriptions: list[Subscription] = []
        self.resolved = start
        self._shown: list[DdlEvent] = []
        self._open_watch = open_watch
        self._deliver = deliver
        self._fail = fail
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ddl-feed", daemon=True)

    @property
    def alive(self) -> bool:
        return not self._stopping.is_set()

    def join(self, subscriptions: Iterable[Subscription]) -> None:
        for subscription in subscriptions:
            subscription.join(self._shown)
            self.subscriptions.append(subscription)

    def take(self, batch: DdlBatch, asked_at: datetime) -> None:
        """A reopened watch shows unresolved events again: known events are skipped."""
        last = self._shown[-1].position if self._shown else None
        self._shown += [event for event in batch.events if last is None or event.position > last]
        self.resolved = max(self.resolved, batch.resolved)
        self._shown = [event for event in self._shown if event.position >= self.resolved]
        for subscription in self.subscriptions:
            subscription.deliver(batch, asked_at)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def wait(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        while self.alive:
            try:
                self._follow()
            except RetryableError as error:
                self._report(error)
                self._stopping.wait(error.retry_after.total_seconds())
            except SluiceError as error:
                self._report(error, ended=True)
            except Exception as error:  # noqa: BLE001  # the edge of a thread
                _log.exception("ddl_watch_broke")
                self._report(InvariantError(f"the DDL watch failed with {redacted(repr(error))}"), ended=True)

    def _follow(self) -> None:
        watch = self._open_watch(self.resolved)
        try:
            while self.alive:
                asked_at = datetime.now(UTC)
                self._deliver(self, watch.poll(), asked_at)
        finally:
            watch.close()

    def _report(self, error: SluiceError, *, ended: bool = False) -> None:
        if not self.alive:
            return  # there are no subscriptions any more, and the client may be closed already
        _log.warning("ddl_watch_failed", code=error.code, error=str(error), resolved=str(self.resolved))
        self._fail(self, error, ended)
