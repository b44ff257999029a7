"""`Stays`: the staying tasks of this driver; carries out what `stay_plan.py` decides.

A window handed to a stay ends in one of three ways, and each is safe:

    answered                        like the outcome of a job
    not taken (`None`)              the task was gone before the window was sent: nothing of it was applied, and it runs as a job
    lost (`PipelineUnavailable`)    sent, but not answered: the connection or the Spark task is gone, or the window was cancelled. Any
                                    part of the window may have been applied, and a lost task may still apply more. The attempt is
                                    revoked, and the thread waits until its writes have ended (`Attempts`)

A stay is one Spark job, and all windows handed to it have one attempt. If one is lost, that attempt is revoked, and with it everything that
the task may still write; the windows after it have a new attempt, so they go to a new stay. If the task has another context than a window
needs, the context is sent with the window.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import structlog

from changefeed.errors import PipelineUnavailable
from changefeed.records.requests import ChangefeedId
from processor.spark import stay_plan
from processor.spark.runner import Group, SparkRunner
from processor.spark.stay_plan import NextWindow, Room, Staying, StayLimits, Way
from processor.task.channel import Call, Channel, ChannelLost, Switchboard
from processor.task.job import JobContext, JobOutcome, JobSpec
from processor.task.window_task import Departure, HandedWindow, stay
from processor.task.worker_resources import Shared

_TICK_SECONDS = 0.5
_SLOTS_EVERY_SECONDS = 5.0
_MOST = 64

_log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class Stay:
    """One staying task. It runs one window at a time."""

    group: Group
    context: str
    """The key of the one that it has."""
    call: Call
    dialled: Future[Channel]
    ended: Future[Departure]
    cancelled: threading.Event = field(default_factory=threading.Event, init=False)

    def run(self, context: JobContext, spec: JobSpec) -> JobOutcome | None:
        waited: list[Future[Any]] = [self.dialled, self.ended]
        wait(waited, return_when=FIRST_COMPLETED)
        if self.dialled.done():
            outcome = self._hand_over(self.dialled.result(), context, spec)
        else:
            outcome = self._never_connected(self.ended.result())
        if outcome is None and self.cancelled.is_set():
            raise PipelineUnavailable(f"Spark, {self.group}: the window was cancelled before it was handed over")
        return outcome

    def _hand_over(self, channel: Channel, context: JobContext, spec: JobSpec) -> JobOutcome | None:
        if not channel.silent(0):
            return None
        changed = context.without_base() if context.key != self.context else None
        try:
            channel.send(HandedWindow(spec=spec, context=changed))
        except ChannelLost:
            return None
        self.context = context.key
        try:
            outcome = channel.receive()
        except ChannelLost as lost:
            what = f"Spark, {self.group}: the staying task is lost with its window: {lost}"
            raise PipelineUnavailable(what) from lost
        assert isinstance(outcome, JobOutcome)
        return outcome

    def leave(self) -> None:
        """Call it only while the task is idle."""
        if self.dialled.done():
            try:
                self.dialled.result().send(None)
            except ChannelLost as lost:
                _log.info("stay_gone_already", group=str(self.group), reason=str(lost))

    def hang_up(self) -> None:
        if self.dialled.done():
            self.dialled.result().hang_up()

    @staticmethod
    def _never_connected(departure: Departure) -> JobOutcome | None:
        """The task has ended without the window, so nothing of the window was applied."""
        return None if departure.error is None else JobOutcome(error=departure.error)


class Stays:
    """The stays of one node, for the life of its Spark session. Thread-safe. `close` may be called twice."""

    def __init__(
        self, spark: SparkRunner, limits: StayLimits | None = None, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._spark = spark
        self._limits = limits or StayLimits()
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._room = Room(slots=0)
        self._slots_at = float("-inf")
        self._stays: dict[ChangefeedId, Stay] = {}
        self._running: dict[str, Stay] = {}
        """The stays with a running window, by the attempt of the window."""
        self._switchboard: Switchboard | None = None
        self._threads = ThreadPoolExecutor(_MOST, "stay")
        self._closed = threading.Event()
        self._some = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="stays", daemon=True)

    def close(self) -> None:
        """Idle stays leave. Running ones lose the connection to their driver."""
        self._closed.set()
        self._some.set()
        with self._lock:
            self._ask_to_leave(tuple(self._stays))
            for found in self._running.values():
                self._give_up(found)
            self._threads.shutdown(wait=False)
            if self._switchboard is not None:
                self._switchboard.close()

    @contextmanager
    def beside(self, tasks: int) -> Iterator[None]:
        """Counts `tasks` tasks of a job as running or waiting for a slot."""
        self._others(tasks)
        try:
            yield
        finally:
            self._others(-tasks)

    def run(
        self, context: JobContext, spec: JobSpec, broadcast: Callable[[], Shared], job: Callable[[], JobOutcome]
    ) -> JobOutcome:
        """Runs a narrow window of a default lane, in a stay or as a job of its own. `broadcast`: the context as a Spark job receives it."""
        run = context.fence.run
        window = NextWindow(changefeed=context.changefeed, base=context.base_key, run=run, attempt=spec.attempt)
        found = self._stay_for(window, context, broadcast)
        outcome: JobOutcome | None = None
        try:
            if found is not None:
                outcome = found.run(context, spec)
            return outcome if outcome is not None else job()
        finally:
            self._ended(window, found, stays=outcome is not None and outcome.error is None)

    def cancel(self, attempt: str) -> None:
        """Ends the stay that runs a window of the attempt. The task stops writing once it notices; the thread that waits for the window sees it as lost."""
        with self._lock:
            found = self._running.get(attempt)
        if found is not None:
            found.cancelled.set()
            self._give_up(found)
            self._spark.cancel(found.group)

    def _stay_for(self, window: NextWindow, context: JobContext, broadcast: Callable[[], Shared]) -> Stay | None:
        id, now = window.changefeed, self._monotonic()
        self._look_at_slots(now)
        with self._lock:
            self._ask_to_leave(stay_plan.leaving(self._room, self._limits, now, window))
            way = stay_plan.way_of(window, self._room, now)
            self._follows(id, float("inf"))
            if way is Way.JOB or self._closed.is_set() or not self._listens(now):
                return None
            if way is Way.BEGIN:
                self._stays[id] = self._begun(window, context, broadcast)
                known = Staying(base=window.base, run=window.run, attempt=window.attempt, begun_at=now, idle_since=None)
            else:
                known = replace(self._room.staying[id], idle_since=None)
            self._know(id, known)
            found = self._running[window.attempt] = self._stays[id]
        if way is Way.BEGIN:
            found.ended.add_done_callback(lambda ended: self._gone(id, found, ended))
        return found

    def _listens(self, now: float) -> bool:
        if self._switchboard is None:
            try:
                self._switchboard = self._spark.switchboard()
            except OSError as error:
                _log.warning("stays_cannot_listen", error=str(error))
                self._room = replace(self._room, no_way_until=now + self._limits.without)
                return False
            self._keeper.start()
        return True

    def _begun(self, window: NextWindow, context: JobContext, broadcast: Callable[[], Shared]) -> Stay:
        assert self._switchboard is not None
        self._some.set()
        group = Group(context.changefeed, f"{context.fence.run}-stay")
        dialled: Future[Channel] = Future()
        call = self._switchboard.expect(dialled.set_result)

        def whole() -> Departure:
            return self._spark.run_one(group, partial(stay, broadcast(), window.attempt, call))

        return Stay(group, context.key, call, dialled, self._threads.submit(whole))

    def _ended(self, window: NextWindow, found: Stay | None, *, stays: bool) -> None:
        """A failed window ends its stay, so that the next window starts with fresh state."""
        now = self._monotonic()
        with self._lock:
            self._follows(window.changefeed, now + self._limits.follows)
            if found is None:
                return
            self._running.pop(window.attempt, None)
            if self._stays.get(window.changefeed) is not found:
                found.leave()  # it was asked to leave while the window was running
            elif stays:
                self._know(window.changefeed, replace(self._room.staying[window.changefeed], idle_since=now))
            else:
                self._ask_to_leave((window.changefeed,), busy=False)

    def _gone(self, id: ChangefeedId, found: Stay, ended: Future[Departure]) -> None:
        """The stay's Spark job has ended. Closes the channel, so that no thread waits for an answer that cannot come."""
        self._give_up(found)
        error = ended.exception()
        unreachable = "" if error is not None else ended.result().unreachable
        if error is not None and not self._closed.is_set():
            _log.warning("stay_failed", group=str(found.group), error=str(error))
        if unreachable and not found.cancelled.is_set():
            _log.warning("stay_without_a_way", group=str(found.group), reason=unreachable)
        with self._lock:
            self._forget(id, found)
            if unreachable and not found.cancelled.is_set():
                self._room = replace(self._room, no_way_until=self._monotonic() + self._limits.without)

    def _give_up(self, found: Stay) -> None:
        assert self._switchboard is not None
        self._switchboard.forget(found.call)
        found.hang_up()

    def _others(self, tasks: int) -> None:
        with self._lock:
            self._room = replace(self._room, others=self._room.others + tasks)
            self._ask_to_leave(stay_plan.leaving(self._room, self._limits, self._monotonic()))

    def _ask_to_leave(self, ids: tuple[ChangefeedId, ...], *, busy: bool | None = None) -> None:
        for id in ids:
            found = self._stays[id]
            running = self._room.staying[id].idle_since is None if busy is None else busy
            self._forget(id, found)
            if not running:
                found.leave()

    def _forget(self, id: ChangefeedId, found: Stay) -> None:
        if self._stays.get(id) is found:
            del self._stays[id]
            left = {key: known for key, known in self._room.staying.items() if key != id}
            self._room = replace(self._room, staying=left)

    def _know(self, id: ChangefeedId, known: Staying) -> None:
        self._room = replace(self._room, staying={**self._room.staying, id: known})

    def _follows(self, id: ChangefeedId, until: float) -> None:
        now = self._monotonic()
        others = {key: at for key, at in self._room.following.items() if key != id and now < at}
        self._room = replace(self._room, following={**others, id: until})

    def _look_at_slots(self, now: float) -> None:
        if self._room.slots and now < self._slots_at + _SLOTS_EVERY_SECONDS:
            return
        slots = self._spark.slots()
        with self._lock:
            self._slots_at = now
            self._room = replace(self._room, slots=slots)

    def _keep(self) -> None:
        """Asks idle stays to leave, also when no window comes."""
        while not self._closed.is_set():
            self._some.wait()
            if self._closed.wait(_TICK_SECONDS):
                return
            with self._lock:
                self._ask_to_leave(stay_plan.leaving(self._room, self._limits, self._monotonic()))
                if not self._stays:
                    self._some.clear()
