"""`Exchange`, `SimulatedSwitchboard`, `SimulatedChannel`: the connections between drivers and their staying tasks, over the simulated network.

What was sent before a connection broke may still arrive, and what was sent successfully may not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from processor.task.channel import Call, ChannelLost
from processor.task.window_task import HandedWindow
from tests.simulation.clockwork.machine import Process
from tests.simulation.clockwork.network import Network
from tests.simulation.clockwork.substitutes import Waiters

_DIAL_SECONDS = 5.0
_HALF_OPEN = 0.5
_NOTICED_AFTER = (0.02, 0.5, 5.0, 30.0)

_Dialled = Callable[["SimulatedChannel"], None]


class Exchange:
    """Knows which calls are expected, and by which driver."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.expected: dict[bytes, tuple[Process, _Dialled]] = {}
        self._calls = 0

    def switchboard(self) -> SimulatedSwitchboard:
        return SimulatedSwitchboard(self)

    def new_call(self) -> Call:
        self._calls += 1
        return Call("driver", 1, str(self._calls).encode(), b"")

    def dial(self, call: Call) -> SimulatedChannel:
        """The task's side. It waits until the driver has answered."""
        machine, task = self.network.machine, self.network.machine.current
        assert task is not None
        self.network.move()
        driver, dialled = self.expected.pop(call.name, (None, None))
        if (
            driver is None
            or dialled is None
            or not driver.alive
            or self.network.chance(self.network.weather.channel_broken)
        ):
            machine.count("stay: cannot reach its driver")
            raise ChannelLost("the driver cannot be reached")
        line = _Line(self.network)
        driver.on_death.append(partial(line.cut, line.driver))
        task.process.on_death.append(partial(line.cut, line.task))
        machine.spawn(driver, "switchboard-call", partial(self._answer, line, dialled))
        deadline = machine.now + _DIAL_SECONDS
        while not line.answered:
            if line.task.is_cut or machine.now >= deadline:
                line.cut(line.task)
                raise ChannelLost("the driver does not answer")
            line.task.changed.wait(deadline)
        return SimulatedChannel(line, driver=False)

    def _answer(self, line: _Line, dialled: _Dialled) -> None:
        self.network.move()
        line.answered = True
        line.task.changed.wake_all()
        dialled(SimulatedChannel(line, driver=True))


class SimulatedSwitchboard:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._calls: list[Call] = []

    def expect(self, dialled: _Dialled) -> Call:
        current = self._exchange.network.machine.current
        assert current is not None
        call = self._exchange.new_call()
        self._exchange.expected[call.name] = current.process, dialled
        self._calls.append(call)
        return call

    def forget(self, call: Call) -> None:
        self._exchange.expected.pop(call.name, None)

    def close(self) -> None:
        for call in self._calls:
            self.forget(call)


class _End:
    """What one side knows of the connection."""

    def __init__(self) -> None:
        self.is_cut = False
        self.inbox: deque[tuple[int, Any]] = deque()
        self.changed = Waiters()

    def cut(self) -> None:
        self.is_cut = True
        self.changed.wake_all()


class _Line:
    def __init__(self, network: Network) -> None:
        self.network = network
        self.answered = False
        self.driver, self.task = _End(), _End()

    def cut(self, noticed_by: _End) -> None:
        """The other side may notice it later."""
        noticed_by.cut()
        other = self.task if noticed_by is self.driver else self.driver
        machine, weather = self.network.machine, self.network.weather
        if weather.channel_broken and machine.random.random() < _HALF_OPEN:
            machine.count("stay: one side does not notice that the connection broke")
            machine.after(machine.random.choice(_NOTICED_AFTER), other.cut)
        else:
            other.cut()


class SimulatedChannel:
    """Stands in for `Channel`."""

    def __init__(self, line: _Line, *, driver: bool) -> None:
        self._line = line
        self._network = line.network
        self._near, self._far = (line.driver, line.task) if driver else (line.task, line.driver)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, message: object) -> None:
        self._network.move()
        self._may_break()
        if self._near.is_cut:
            raise ChannelLost("the connection broke")
        self._far.inbox.append((self._network.machine.new_number(), message))
        self._far.changed.wake_all()
        self._may_break()

    def receive(self) -> Any:
        while not self._near.inbox:
            if self._near.is_cut:
                raise ChannelLost("the other side has hung up")
            self._near.changed.wait(None)
        number, message = self._near.inbox.popleft()
        current = self._network.machine.current
        if isinstance(message, HandedWindow) and current is not None:
            current.task = number  # a window is as old as its handing over
            self._network.machine.count("window handed to a staying task")
        return message

    def silent(self, seconds: float) -> bool:
        """A look does not let the clock move."""
        machine, near = self._network.machine, self._near
        deadline = machine.now + seconds
        while not near.inbox and not near.is_cut and machine.now < deadline:
            near.changed.wait(deadline)
        return not near.inbox and not near.is_cut

    def hang_up(self) -> None:
        self._line.cut(self._near)

    def close(self) -> None:
        self._line.cut(self._near)

    def _may_break(self) -> None:
        if self._network.chance(self._network.weather.channel_broken):
            self._network.machine.count("stay: connection broken")
            self._line.cut(self._near)
