"""`Network`: the network between processes and services, and its faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from pymongo.errors import AutoReconnect

from changefeed.errors import CoordinationUnavailable
from coordination.etcd.protocol import Committed, Compare, KeyValue, Lease, Op, Refused, Snapshot
from tests.memory_etcd import MemoryClient, MemoryEtcd, MemoryWatch
from tests.simulation.clockwork.machine import Machine, Process

CONNECTION_TIMEOUT = 0.3
ARRIVES_WITHIN = timedelta(seconds=1.5)


@dataclass
class Weather:
    """The rates at which requests fail. All zero: no faults."""

    etcd_answer_lost: float = 0.0
    etcd_request_late: float = 0.0
    target_broken_before: float = 0.0
    target_broken_after: float = 0.0
    target_partial: float = 0.0
    source_broken: float = 0.0
    channel_broken: float = 0.0
    slow: float = 0.0

    def clear(self) -> None:
        for name in self.__dataclass_fields__:
            setattr(self, name, 0.0)


@dataclass
class Outage:
    until: float = 0.0


class Network:
    forgets = True
    """What a connection to the target has not delivered is lost when it is closed, and after `ARRIVES_WITHIN`."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.weather = Weather()
        self.source_down = Outage()
        self.target_down = Outage()
        self.etcd_down = Outage()
        self.cut_off: set[Process] = set()
        """Processes that cannot reach etcd."""
        self.unreachable: set[tuple[str, str]] = set()
        """Nodes whose workers cannot reach the source or the target, with the name of that service."""
        self.late = Random(f"late rows {machine.seed}")
        self.late_rows = 0.0
        """How often the network holds the rows of a command back. Apart from the weather, so that seeds without it stay what they are."""

    def chance(self, rate: float) -> bool:
        return rate > 0 and self.machine.random.random() < rate

    def latency(self) -> float:
        draw = self.machine.random.random()
        if self.chance(self.weather.slow):
            return 0.05 + draw * 0.5
        return 0.0002 + draw * 0.002

    def move(self) -> None:
        self.machine.step()
        self.machine.sleep(self.latency())
        self.machine.step()

    def walled_off(self, service: str) -> bool:
        current = self.machine.current
        node, is_worker, _ = current.process.name.partition("/") if current is not None else ("", "", "")
        return bool(is_worker) and (node, service) in self.unreachable

    def travel(self, outage: Outage, service: str) -> None:
        self.move()
        if outage.until > self.machine.now or self.walled_off(service):
            self.machine.sleep(CONNECTION_TIMEOUT)
            raise AutoReconnect(f"{service} does not answer")
        if service == "the source" and self.chance(self.weather.source_broken):
            raise AutoReconnect(f"the connection to {service} broke")


class EtcdLine(MemoryClient):
    """One process's connection to etcd."""

    def __init__(self, server: MemoryEtcd, network: Network, process: Process) -> None:
        super().__init__(server)
        self.network = network
        self.process = process

    def get(self, key: str) -> KeyValue | None:
        self._travel()
        found = super().get(key)
        self.network.move()
        return found

    def range(self, prefix: str, below: str = "", *, at_rev: int = 0) -> Snapshot:
        self._travel()
        found = super().range(prefix, below, at_rev=at_rev)
        self.network.move()
        return found

    def keys(self, prefix: str) -> list[str]:
        self._travel()
        found = super().keys(prefix)
        self.network.move()
        return found

    def txn(self, compares: Sequence[Compare], ops: Sequence[Op]) -> Committed | Refused:
        self._travel()
        weather, chance = self.network.weather, self.network.chance
        if chance(weather.etcd_request_late):
            self.lose_requests = 1
            if chance(0.7):
                self.network.machine.after(self.network.machine.random.choice((0.01, 0.5, 3.0)), self.deliver_late)
            self.network.machine.note(self.process.name, "a request to etcd is late")
        elif chance(weather.etcd_answer_lost):
            self.lose_answers = 1
            self.network.machine.note(self.process.name, "an answer of etcd is lost")
        result = super().txn(compares, ops)
        self.network.move()
        return result

    def watch(self, prefix: str, start_rev: int, below: str = "") -> MemoryWatch:
        self._travel()
        return super().watch(prefix, start_rev, below)

    def grant(self, ttl: timedelta) -> Lease:
        self._travel()
        granted = super().grant(ttl)
        self.network.move()
        return granted

    def keep_alive(self, lease: int, timeout: timedelta) -> timedelta | None:
        self._travel()
        left = super().keep_alive(lease, timeout)
        self.network.move()
        return left

    def revoke(self, lease: int) -> None:
        self._travel()
        super().revoke(lease)

    def _travel(self) -> None:
        network = self.network
        network.move()
        self.connected = self.process not in network.cut_off and network.etcd_down.until <= network.machine.now
        if not self.connected:
            network.machine.sleep(CONNECTION_TIMEOUT)
            raise CoordinationUnavailable("etcd: not connected")
