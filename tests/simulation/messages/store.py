"""`ModelStore`: the files of a sink in memory, as a bucket keeps them: a file has its whole content or does not exist. `StoreLine`: the way of one
process to them, over the simulated network.

An operation that fails may have happened, and may still happen later. `tests/component/sink/files/test_stores.py` asks the model what it asks real
stores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from changefeed.errors import SinkUnavailable
from tests.simulation.clockwork.network import CONNECTION_TIMEOUT, Network

T = TypeVar("T")

_LATE = (0.01, 0.5, 3.0, 10.0)
"""Seconds after which a request arrives whose client has given up."""


class ModelStore:
    if_empty = "was it emptied?"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.created: Callable[[str, bytes], None] = lambda name, content: None
        """Called after each file that a conditional put has made."""

    def __str__(self) -> str:
        return "model"

    def check(self) -> None: ...

    def empty(self) -> bool:
        return not self.files

    def create(self, name: str, content: bytes) -> bool:
        if name in self.files:
            return False
        self.files[name] = content
        self.created(name, content)
        return True

    def new(self, name: str) -> ModelFile:
        return ModelFile(self, name)

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def names(self, folder: str, after: str = "") -> list[str]:
        within = f"{folder}/" if folder else ""
        found = {name[len(within) :].partition("/")[0] for name in self.files if name.startswith(within)}
        return sorted(name for name in found if name > after)

    def remove(self, name: str) -> None:
        self.files.pop(name, None)

    def below(self, folder: str) -> list[str]:
        return [name for name in self.files if name.startswith(f"{folder}/")]

    def tidy(self, folder: str, begins: str = "") -> None: ...


class ModelFile:
    def __init__(self, store: ModelStore, name: str) -> None:
        self._store = store
        self._name = name
        self._parts: list[bytes] = []

    def write(self, content: bytes) -> None:
        self._parts.append(content)

    def end(self) -> None:
        assert self._name not in self._store.files, f"{self._name}: expected a name that nobody else uses"
        self._store.files[self._name] = b"".join(self._parts)

    def close(self) -> None: ...


class StoreLine:
    """Each call is one request, which may be lost, late, or without an answer."""

    def __init__(self, store: ModelStore, network: Network) -> None:
        self._store = store
        self._network = network
        self.if_empty = store.if_empty

    def __str__(self) -> str:
        return str(self._store)

    def check(self) -> None:
        self.ask(lambda: None)

    def empty(self) -> bool:
        return self.ask(self._store.empty)

    def create(self, name: str, content: bytes) -> bool:
        return self.ask(lambda: self._store.create(name, content), changes=True)

    def new(self, name: str) -> _FileLine:
        return _FileLine(self, self._store.new(name))

    def read(self, name: str) -> bytes | None:
        return self.ask(lambda: self._store.read(name))

    def names(self, folder: str, after: str = "") -> list[str]:
        return self.ask(lambda: self._store.names(folder, after))

    def remove(self, name: str) -> None:
        self.ask(lambda: self._store.remove(name), changes=True)

    def below(self, folder: str) -> list[str]:
        return self.ask(lambda: self._store.below(folder))

    def tidy(self, folder: str, begins: str = "") -> None: ...

    def ask(self, effect: Callable[[], T], *, changes: bool = False) -> T:
        network, machine = self._network, self._network.machine
        network.move()
        if network.target_down.until > machine.now or network.walled_off("the target"):
            machine.sleep(CONNECTION_TIMEOUT)
            raise SinkUnavailable("the store does not answer")
        if network.chance(network.weather.target_broken_before):
            if changes and machine.random.random() < 0.5:
                machine.count("store: request that arrives late")
                machine.after(machine.random.choice(_LATE), effect)
            raise SinkUnavailable("the request to the store was given up")
        result = effect()
        if network.chance(network.weather.target_broken_after):
            machine.count("store: lost answer")
            raise SinkUnavailable("the answer of the store was lost")
        network.move()
        return result


class _FileLine:
    def __init__(self, line: StoreLine, file: ModelFile) -> None:
        self._line = line
        self._file = file

    def write(self, content: bytes) -> None:
        self._file.write(content)

    def end(self) -> None:
        self._line.ask(self._file.end, changes=True)

    def close(self) -> None: ...
