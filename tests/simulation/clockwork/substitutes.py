"""`installed`: replaces `time`, `threading`, `datetime`, `Random` and the thread pools in the product's modules while a simulation runs.

Why modules are patched here and nowhere else: the whole program, with its threads and waits, must run unchanged under a simulated clock
and scheduler. These modules *are* the seam between a program and its machine. Passing a clock, a lock factory and a thread factory to
every class would add arguments only for the tests.
"""

from __future__ import annotations

import datetime as dt
import random
import sys
import threading as real_threading
import time as real_time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import cache
from math import inf
from types import FunctionType, SimpleNamespace
from typing import Any, Self
from unittest.mock import patch

import pymongo
import structlog

from tests.simulation.clockwork.machine import Machine, Thread

_PACKAGES = (
    "owner.",
    "processor.",
    "coordination.",
    "tests.memory_etcd",
    "schema_store.",
    "sink.",
    "source.",
    "node.membership",
    "credentials.logging",
)
EPOCH = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)

_LEAST = 1e-6
"""The shortest wait: the clock must move, however the offsets of two clocks are rounded."""

_machine: Machine | None = None
_home = 0
"""The thread in which it runs."""


def machine() -> Machine:
    assert _machine is not None, "no simulation runs"
    return _machine


def _thread() -> Thread:
    current = machine().current
    assert current is not None, "only a simulated thread can wait"
    return current


def monotonic() -> float:
    current = machine().current
    return machine().now + (current.process.clock_offset if current else 0.0)


def sleep(seconds: float) -> None:
    """A thread that an earlier test has left in a module of the product (such as a stall watch) sleeps in real time."""
    if real_threading.get_ident() == _home:
        machine().sleep(seconds)
    else:
        real_time.sleep(seconds)


class Waiters:
    """Threads that wait for the same condition."""

    def __init__(self) -> None:
        self._threads: deque[Thread] = deque()

    def wait(self, deadline: float | None) -> None:
        thread = _thread()
        self._threads.append(thread)
        try:
            machine().block(deadline)
        finally:
            if thread in self._threads:
                self._threads.remove(thread)

    def wake_all(self) -> None:
        while self._threads:
            machine().wake(self._threads.popleft())

    def wake_one(self) -> None:
        if self._threads:
            machine().wake(self._threads.popleft())


class Lock:
    def __init__(self) -> None:
        self._held = False
        self._waiters = Waiters()

    def acquire(self) -> bool:
        while self._held:
            self._waiters.wait(None)
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        self._waiters.wake_one()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    """No other thread runs between two waits, so its lock is always free."""

    def __init__(self) -> None:
        self._waiters = Waiters()

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None: ...

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        deadline = None if timeout is None else machine().now + max(timeout, _LEAST)
        while not (found := predicate()):
            if deadline is not None and machine().now >= deadline:
                break
            self._waiters.wait(deadline)
        return found

    def notify_all(self) -> None:
        self._waiters.wake_all()


class Event:
    def __init__(self) -> None:
        self._set = False
        self._waiters = Waiters()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._waiters.wake_all()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        deadline = None if timeout is None else machine().now + max(timeout, _LEAST)
        while not self._set:
            self._waiters.wait(deadline)
            if deadline is not None and machine().now >= deadline:
                break
        return self._set


class SimulatedThread:
    def __init__(
        self, target: Callable[..., object], name: str = "", daemon: bool | None = None, args: tuple[Any, ...] = ()
    ) -> None:
        self._target, self._args = target, args
        self._name = name
        self._thread: Thread | None = None

    def start(self) -> None:
        self._thread = machine().spawn(_thread().process, self._name, lambda: self._target(*self._args))

    def is_alive(self) -> bool:
        return self._thread is not None and not self._thread.done

    @property
    def ident(self) -> int | None:
        return None if self._thread is None else id(self._thread)

    def join(self, timeout: float | None = None) -> None:
        assert self._thread is not None
        deadline = None if timeout is None else machine().now + timeout
        while not self._thread.done:
            self._thread.joiners.append(_thread())
            machine().block(deadline)
            if deadline is not None and machine().now >= deadline:
                return


class Future(futures.Future[Any]):
    """A future whose waits go through the machine."""

    def __init__(self) -> None:
        super().__init__()
        self._ended = Waiters()
        self.add_done_callback(lambda _: self._ended.wake_all())

    def result(self, timeout: float | None = None) -> Any:
        while not self.done():
            self._ended.wait(None)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        while not self.done():
            self._ended.wait(None)
        return super().exception(0)


def wait(pending: Iterable[Future], timeout: float | None = None, return_when: str = futures.ALL_COMPLETED) -> None:
    """The product does not use its answer."""
    assert return_when == futures.FIRST_COMPLETED, "no simulated thread waits for several futures"
    asked, deadline = list(pending), None if timeout is None else machine().now + max(timeout, _LEAST)
    ended = Waiters()
    for future in asked:
        future.add_done_callback(lambda _: ended.wake_all())
    while not any(future.done() for future in asked):
        ended.wait(deadline)
        if deadline is not None and machine().now >= deadline:
            return


class Executor:
    """Runs each call in a new thread."""

    def __init__(self, max_workers: int | None = None, thread_name_prefix: str = "pool", **_: object) -> None:
        self._name = thread_name_prefix
        self._closed = False

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future:
        future = Future()

        def run() -> None:
            try:
                result = call(*arguments)
            except Exception as error:  # noqa: BLE001  # a future carries it
                future.set_exception(error)
            else:
                future.set_result(result)

        beside = _thread()
        machine().spawn(beside.process, self._name, run).task = beside.task
        return future

    def map(self, call: Callable[..., Any], *items: Iterable[Any]) -> Iterator[Any]:
        pending = [self.submit(call, *each) for each in zip(*items, strict=False)]
        return (future.result() for future in pending)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class _DatetimeKind(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, dt.datetime)


class Datetime(dt.datetime, metaclass=_DatetimeKind):
    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:  # type: ignore[override]  # returns plain datetimes
        return EPOCH + timedelta(seconds=machine().now)


@contextmanager
def _command_timeout(seconds: float) -> Iterator[None]:
    """Replaces `pymongo.timeout`: the simulated client checks the deadline, the earlier of two."""
    thread = _thread()
    before = thread.command_deadline
    thread.command_deadline = min(machine().now + seconds, before if before is not None else inf)
    try:
        yield
    finally:
        thread.command_deadline = before


def _fresh_random() -> random.Random:
    return random.Random(machine().random.random())


_TIME = SimpleNamespace(monotonic=monotonic, sleep=sleep)
_THREADING = SimpleNamespace(Lock=Lock, Condition=Condition, Event=Event, Thread=SimulatedThread)
_PYMONGO = SimpleNamespace(timeout=_command_timeout)


_STAND_INS: list[tuple[object, object]] = [
    (real_time, _TIME),
    (real_threading, _THREADING),
    (dt.datetime, Datetime),
    (futures.ThreadPoolExecutor, Executor),
    (futures.Future, Future),
    (futures.wait, wait),
    (random.Random, _fresh_random),
    (pymongo, _PYMONGO),
]


def _stand_in(value: object) -> object | None:
    return next((stand_in for real, stand_in in _STAND_INS if real is value), None)


class _Logged:
    """Formatted only when the history is read, since most histories are never read."""

    def __init__(self, event: dict[str, Any]) -> None:
        self._event = event
        self._error = sys.exc_info()[1] if event.get("exc_info") else None

    def __str__(self) -> str:
        facts = (f"{name}={value}" for name, value in self._event.items() if name not in ("event", "exc_info", "node"))
        error = [repr(self._error)] if self._error else []
        return " ".join([self._event["event"], *facts, *error])


def _log_into(history: Callable[[str, object], None]) -> Callable[..., Any]:
    def processor(_: object, level: str, event: dict[str, Any]) -> Any:
        current = machine().current
        history(current.process.name if current else "-", _Logged(event))
        raise structlog.DropEvent

    return processor


@cache
def _places(modules: int) -> list[tuple[Any, str, object]]:
    """The attributes to replace. Searched again only after further modules were imported."""
    return [
        (module, attribute, stand_in)
        for name, module in list(sys.modules.items())
        if name.startswith(_PACKAGES)
        for attribute, value in vars(module).items()
        if not attribute.startswith("__")
        and (stand_in := _stand_in(value)) is not None
        and not (attribute == "Random" and name != "owner.changefeed_owner")
    ]


@cache
def _defaults(modules: int) -> list[tuple[dict[str, Any], dict[str, object]]]:
    """The defaults of arguments that are a real clock or a real pause, each with what replaces it."""
    kept = [
        value
        for name, module in list(sys.modules.items())
        if name.startswith(_PACKAGES)
        for value in vars(module).values()
    ]
    functions = [each for kind in kept if isinstance(kind, type) for each in vars(kind).values()] + kept
    found = {
        id(each): each.__kwdefaults__ for each in functions if isinstance(each, FunctionType) and each.__kwdefaults__
    }
    stand_ins: dict[object, object] = {real_time.monotonic: monotonic, real_time.sleep: sleep}
    replaced: list[tuple[dict[str, Any], dict[str, object]]] = []
    for defaults in found.values():
        values = {name: stand_ins[value] for name, value in defaults.items() if callable(value) and value in stand_ins}
        replaced += [(defaults, values)] if values else []
    return replaced


@contextmanager
def installed(run: Machine) -> Iterator[None]:
    """Everything in the product that uses a clock, a thread or randomness gets the machine's."""
    global _machine, _home  # noqa: PLW0603  # one run at a time in a process; modules can be patched only globally
    _machine, _home = run, real_threading.get_ident()
    log_configuration = structlog.get_config()
    structlog.configure(processors=[_log_into(run.note)], cache_logger_on_first_use=False)
    with ExitStack() as stack:
        for module, attribute, stand_in in _places(len(sys.modules)):
            stack.enter_context(patch.object(module, attribute, stand_in))
        for defaults, values in _defaults(len(sys.modules)):
            stack.enter_context(patch.dict(defaults, values))
        try:
            yield
        finally:
            run.close()
            structlog.configure(**log_configuration)
            _machine = None
