"""`Machine`: runs many processes and their threads in one real thread, with one simulated clock and one seed.

Each thread of the program is a greenlet. Exactly one runs at a time, until it waits for something: a lock, an event, a deadline, the
network. Then the seed picks the next one of the ready threads. When none is ready, the clock jumps to the next deadline. So a run is a
function of its seed.

A process can die and freeze, and has a clock of its own. A crash ends its threads wherever they wait; a freeze leaves them there.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from random import Random

import greenlet

from changefeed.table import TableId


class Violation(BaseException):
    """An invariant was violated. No product code catches this error: it ends the run."""


class Process:
    """`name` is for the history. `steps` counts down to an accident between two actions."""

    def __init__(self, machine: Machine, name: str, clock_offset: float) -> None:
        self.machine = machine
        self.name = name
        self.clock_offset = clock_offset
        self.alive = True
        self.frozen = False
        self.threads: list[Thread] = []
        self.held: list[Thread] = []
        self.steps = 0
        self.accident: Callable[[], None] | None = None
        self.on_death: list[Callable[[], None]] = []

    def after_steps(self, steps: int, accident: Callable[[], None]) -> None:
        self.steps, self.accident = steps, accident

    def __str__(self) -> str:
        return self.name


class Thread:
    def __init__(
        self, process: Process, name: str, number: int, target: Callable[[], object], hub: greenlet.greenlet
    ) -> None:
        self.process = process
        self.name = name
        self.waiting = False
        self.turn = 0
        self.done = False
        self.joiners: list[Thread] = []
        self.begun = False
        self.sending = False
        """Its command is with a server (`at_server`)."""
        self.command_deadline: float | None = None
        self.number = number
        self.task = number
        """The number of the thread for which it works, or its own number."""
        self.copies: TableId | None = None
        """The table whose initial copy the thread works for."""
        self.sent_by: str | None = None
        """The node that sent its command, if that came late: its process may have died meanwhile."""
        self.greenlet = greenlet.greenlet(target, parent=hub)

    @property
    def is_dead(self) -> bool:
        return not self.process.alive and not self.sending


class Machine:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now = 0.0
        self.current: Thread | None = None
        self.failure: BaseException | None = None
        self._noted: list[tuple[float, str, object]] = []
        self.actions = 0
        self.met: Counter[str] = Counter()
        """What happened in this run, and how often."""
        self._hub = greenlet.getcurrent()
        self._ready: list[Thread] = []
        self._timers: list[tuple[float, int, Thread | Callable[[], object], int]] = []
        self._number = count()
        self._dying: list[Process] = []
        self._processes: list[Process] = []
        self.on_time: Callable[[float], None] = lambda now: None

    # processes and threads

    def process(self, name: str) -> Process:
        made = Process(self, name, self.random.uniform(0, 1000))
        self._processes.append(made)
        return made

    def spawn(self, process: Process, name: str, target: Callable[[], object]) -> Thread:
        def body() -> None:
            try:
                thread.begun = True
                target()
            except Violation as violation:
                self.fail(violation)
            except greenlet.GreenletExit:
                pass
            except Exception as error:  # noqa: BLE001  # the edge of a simulated thread
                if process.alive:
                    self.note(process.name, f"thread {name} ended with {error!r}")
                    self.fail(error)
            finally:
                thread.done = True
                for joiner in thread.joiners:
                    self.wake(joiner)
                if thread in process.threads:
                    process.threads.remove(thread)

        thread = Thread(process, name, next(self._number), body, self._hub)
        process.threads.append(thread)
        self._ready.append(thread)
        return thread

    def new_number(self) -> int:
        """Higher than those of all threads and tasks so far."""
        return next(self._number)

    def kill(self, process: Process) -> None:
        """Takes effect at once: the waits of its threads never end."""
        if not process.alive:
            return
        process.alive = False
        process.frozen = False
        self._dying.append(process)
        for told in process.on_death:
            told()
        if self.current is not None and self.current.process is process:
            raise greenlet.GreenletExit

    def freeze(self, process: Process) -> None:
        process.frozen = True

    def thaw(self, process: Process) -> None:
        process.frozen = False
        self._ready += process.held
        process.held = []

    def fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error

    # time

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """`call` runs outside all threads and must not wait."""
        heapq.heappush(self._timers, (self.now + seconds, next(self._number), call, 0))

    def block(self, deadline: float | None) -> None:
        """The current thread waits until it is woken, or until the deadline in the machine's time."""
        thread = self.current
        if thread is None:
            raise AssertionError("only a simulated thread can wait")
        if thread.is_dead:
            raise greenlet.GreenletExit
        thread.waiting = True
        thread.turn += 1
        if deadline is not None:
            heapq.heappush(self._timers, (deadline, next(self._number), thread, thread.turn))
        self._hub.switch()
        if thread.is_dead:
            raise greenlet.GreenletExit

    def wake(self, thread: Thread) -> None:
        if thread.waiting:
            thread.waiting = False
            self._ready.append(thread)

    def sleep(self, seconds: float) -> None:
        self.block(self.now + max(seconds, 0.0))

    def step(self) -> None:
        """Called between two actions of a process: accidents happen here."""
        thread = self.current
        if thread is None:
            raise AssertionError("only a simulated thread acts")
        process = thread.process
        self.actions += 1
        if process.accident is not None and not thread.sending:
            process.steps -= 1
            if process.steps <= 0:
                accident, process.accident = process.accident, None
                accident()
                if process.frozen:
                    self.block(self.now)

    @contextmanager
    def at_server(self) -> Iterator[None]:
        """The current thread stands for a server that carries out its command, also when its process is frozen or dead meanwhile.

        It begins where the process has checked its permit. No accident falls between that and the command: no process could notice it.
        """
        thread = self.current
        assert thread is not None, "only a simulated thread sends commands"
        thread.sending = True
        try:
            yield
        finally:
            thread.sending = False
            if thread.is_dead or thread.process.frozen:
                self.block(self.now)

    def count(self, what: str, times: int = 1) -> None:
        self.met[what] += times

    def note(self, who: str, what: object) -> None:
        """Formatted only when the history is read."""
        self._noted.append((self.now, who, what))

    @property
    def history(self) -> list[str]:
        return [f"{at:9.3f}  {who:<12} {what}" for at, who, what in self._noted]

    def run(self, until: float, finished: Callable[[], bool] = lambda: False) -> bool:
        """Returns whether `finished` became true in time. Raises the failure of the run."""
        while True:
            if self._dying:
                self._bury()
            if self.failure is not None:
                raise self.failure
            if not self._ready:
                if finished():
                    return True
                if not self._advance(until):
                    return False
                continue
            self._switch(self._pick())

    def _pick(self) -> Thread:
        ready = self._ready
        index = int(self.random.random() * len(ready))
        ready[index], ready[-1] = ready[-1], ready[index]
        return ready.pop()

    def _switch(self, thread: Thread) -> None:
        if thread.done or (not thread.process.alive and not thread.begun):
            return
        if thread.process.frozen and not thread.sending:
            thread.process.held.append(thread)
            return
        thread.waiting = False
        self.current = thread
        thread.greenlet.switch()
        self.current = None

    def _advance(self, until: float) -> bool:
        """Jumps to the next deadline that is still waited for. Returns False if it is beyond `until`."""
        while self._timers:
            at, _, what, turn = self._timers[0]
            if isinstance(what, Thread) and (what.turn != turn or not what.waiting):
                heapq.heappop(self._timers)
                continue
            if at > until:
                self.now = until
                return False
            heapq.heappop(self._timers)
            if at > self.now:
                self.now = at
                self.on_time(at)
            if isinstance(what, Thread):
                self.wake(what)
            else:
                what()
            return True
        raise AssertionError("nobody will ever act again")

    def _bury(self) -> None:
        """Ends the threads of dead processes where they wait. What they do while they unwind has no effect."""
        while self._dying:
            process = self._dying.pop()
            for thread in list(process.threads):
                if thread.done or thread.sending:
                    continue
                self.current = thread
                thread.greenlet.throw(greenlet.GreenletExit)
                self.current = None
                thread.done = True
            process.threads = [thread for thread in process.threads if thread.sending]
            process.held.clear()

    def close(self) -> None:
        """Ends all remaining threads, so that nothing of this run goes on in the next one."""
        for process in self._processes:
            process.alive = False
            for thread in process.threads:
                thread.sending = False
        self._dying = list(self._processes)
        self._bury()
