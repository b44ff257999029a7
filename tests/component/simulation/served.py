"""A source or target for contract cases: a real server, or the simulation's model of it. The cases do not know which."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Generic, Protocol, TypeVar

from pymongo.errors import PyMongoError

from tests.simulation.clockwork.machine import Machine
from tests.until import until

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_DEADLINE_SECONDS = 60.0


class Pending(Protocol[T_co]):
    """A call in progress."""

    @property
    def done(self) -> bool: ...

    def result(self) -> T_co:
        """Waits for the call's end; returns its result or raises its error."""
        ...


class Served(Protocol):
    """Runs calls in threads of this process, or of the simulation."""

    def begin(self, call: Callable[[], T]) -> Pending[T]: ...

    def until(self, condition: Callable[[], bool]) -> None: ...


class _Answer(Generic[T]):
    def __init__(self) -> None:
        self._given: list[T] = []
        self._raised: list[Exception] = []

    def fill(self, call: Callable[[], T]) -> None:
        try:
            self._given.append(call())
        except Exception as error:  # noqa: BLE001  # raised again when the result is read
            self._raised.append(error)

    @property
    def done(self) -> bool:
        return bool(self._given or self._raised)

    def get(self) -> T:
        for error in self._raised:
            raise error
        return self._given[0]


class _Threaded(Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self._answer: _Answer[T] = _Answer()
        self._thread = threading.Thread(target=self._answer.fill, args=(call,), daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return self._answer.done

    def result(self) -> T:
        self._thread.join(_DEADLINE_SECONDS)
        assert self.done, f"no answer within {_DEADLINE_SECONDS:g} s"
        return self._answer.get()


class InThisProcess:
    def begin(self, call: Callable[[], T]) -> Pending[T]:
        return _Threaded(call)

    def until(self, condition: Callable[[], bool]) -> None:
        until(condition)


class _Simulated(Generic[T]):
    def __init__(self, machine: Machine, call: Callable[[], T]) -> None:
        self._machine = machine
        self._answer: _Answer[T] = _Answer()
        machine.spawn(machine.process("asker"), "asks", lambda: self._answer.fill(call))
        machine.run(machine.now, lambda: self.done)

    @property
    def done(self) -> bool:
        return self._answer.done

    def result(self) -> T:
        self._machine.run(self._machine.now + _DEADLINE_SECONDS, lambda: self.done)
        assert self.done, f"no answer within {_DEADLINE_SECONDS:g} simulated seconds"
        return self._answer.get()


class InTheMachine:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def begin(self, call: Callable[[], T]) -> Pending[T]:
        return _Simulated(self._machine, call)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = self._machine.now + _DEADLINE_SECONDS
        while not condition():
            assert self._machine.now < deadline, f"not so within {_DEADLINE_SECONDS:g} simulated seconds"
            self._machine.run(self._machine.now + 0.05)


class Asked:
    """Client helpers for contract cases, independent of the server behind the client."""

    def __init__(self, served: Served, client: Any, database: str) -> None:
        self.served = served
        self.client = client
        self.database = database

    def call(self, call: Callable[[], T]) -> T:
        return self.served.begin(call).result()

    def command(self, command: dict[str, Any], *, database: str = "", session: Any = None) -> Any:
        """Runs one command in the database of the case, or in another; raises the server's error."""
        return self.call(lambda: self.client[database or self.database].command(command, session=session))

    def admin(self, command: dict[str, Any]) -> Any:
        return self.call(lambda: self.client.admin.command(command))

    def code(self, command: dict[str, Any], *, database: str = "") -> int:
        """The command's error code, or zero for success."""
        return code_of(lambda: self.command(command, database=database))

    def indexes(self, coll: str, **options: Any) -> list[dict[str, Any]]:
        """Lists indexes as the product does."""
        command = {"listIndexes": coll, **options}
        return self.call(lambda: list(self.client[self.database].cursor_command(command)))


def code_of(act: Callable[[], object]) -> int:
    try:
        act()
    except PyMongoError as error:
        details: Any = getattr(error, "details", None) or {}
        return int(getattr(error, "code", None) or details.get("code") or 0) or -1
    return 0


@contextmanager
def held(begin: Callable[[], object], end: Callable[[], object]) -> Iterator[None]:
    begin()
    try:
        yield
    finally:
        end()


Holding = Callable[[], AbstractContextManager[None]]
