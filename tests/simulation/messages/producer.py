"""`ModelProducer`: stands in for an idempotent producer of Kafka, which sends on its own while its process does other things.

A partition has one batch on its way at a time, so that its messages come in order, each once, whatever answers are lost. A batch that is on its
way arrives, also when its process is frozen or dead by then, or has given it up. The client of a frozen process goes on when it wakes, and asks
nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tests.simulation.clockwork.network import Network
from tests.simulation.clockwork.substitutes import Waiters
from tests.simulation.messages.broker import Headers, ModelBroker, Partition, Sent

_LATE = (0.01, 0.5, 3.0, 10.0)
_AGAIN = 0.1
"""Seconds between two attempts of a client."""
_ROOM = (3, 1000)
"""Messages that it takes before it has sent some."""


class ModelProducer:
    def __init__(self, broker: ModelBroker, network: Network | None, settings: Mapping[str, Any]) -> None:
        self._broker = broker
        self._network = network
        self._failed: Callable[[KafkaError, Any], None] = settings["on_delivery"]
        self._process = None if network is None or (current := network.machine.current) is None else current.process
        self._room = max(_ROOM) if network is None else network.machine.random.choice(_ROOM)
        self._queues: dict[Partition, deque[Sent]] = {}
        self._on_their_way: set[Partition] = set()
        self._sends = False
        self._refused: KafkaError | None = None
        self._reports: list[str] = []
        """The topics of the messages that failed, and of which that was not said."""
        self._given_up = False
        self._changed = Waiters()

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        _on_delivery: None,
        _callback: None,
        _timestamp: int,
        headers: Headers,
    ) -> None:
        if self._refused is not None:
            raise KafkaException(self._refused)
        if len(self) >= self._room:
            raise BufferError
        self._queues.setdefault((topic, partition), deque()).append(Sent(key, value, list(headers)))
        self._begin()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values())) + len(self._reports)

    def poll(self, seconds: float) -> int:
        self._wait(seconds, lambda: bool(self._reports))
        return self._report()

    def flush(self, seconds: float) -> int:
        self._wait(seconds, lambda: not any(self._queues.values()))
        self._report()
        return len(self)

    def purge(self) -> None:
        self._queues.clear()
        self._reports.clear()
        self._given_up = True

    def close(self) -> None:
        self._given_up = True

    def list_topics(self, *, timeout: float) -> Any:
        """What it is asked for when nothing is acknowledged: the reason, as text."""
        leaders = {
            name: SimpleNamespace(
                error=None, partitions=dict.fromkeys(range(len(topic.ends)), SimpleNamespace(leader=1))
            )
            for name, topic in self._broker.topics.items()
        }
        return SimpleNamespace(topics=leaders)

    def _report(self) -> int:
        reports, self._reports = self._reports, []
        for topic in reports:
            self._failed(
                self._refused or KafkaError(KafkaError._FAIL), SimpleNamespace(topic=lambda topic=topic: topic)
            )
        return len(reports)

    def _wait(self, seconds: float, over: Callable[[], bool]) -> None:
        if self._network is None:
            for partition, queue in self._queues.items():
                self._answered(partition, len(queue), self._broker.append(partition, list(queue)))
            return
        machine = self._network.machine
        machine.step()
        deadline = machine.now + seconds
        while not over() and machine.now < deadline:
            self._changed.wait(deadline)
        machine.step()

    # what its thread does

    def _begin(self, seconds: float | None = None) -> None:
        if self._network is not None and not self._sends:
            self._sends = True
            self._network.machine.after(self._network.latency() if seconds is None else seconds, self._send)

    @property
    def _is_gone(self) -> bool:
        return self._given_up or (self._process is not None and not self._process.alive)

    def _send(self) -> None:
        assert self._network is not None
        assert self._process is not None
        self._sends = False
        if self._is_gone:
            return
        if self._process.frozen or self._unreachable():
            self._begin(_AGAIN)
            return
        machine, weather = self._network.machine, self._network.weather
        for place, queue in self._queues.items():
            if place in self._on_their_way or not queue:
                continue
            batch = list(queue)[: machine.random.randint(1, len(queue))]
            late = self._network.chance(weather.target_broken_before)
            if late:
                machine.count("producer: batch that arrives late")
            self._on_their_way.add(place)
            machine.after(
                machine.random.choice(_LATE) if late else self._network.latency(), partial(self._arrive, place, batch)
            )
        if any(queue and place not in self._on_their_way for place, queue in self._queues.items()):
            self._begin(_AGAIN)

    def _unreachable(self) -> bool:
        assert self._network is not None
        assert self._process is not None
        node, is_worker, _ = self._process.name.partition("/")
        walled_off = bool(is_worker) and (node, "the target") in self._network.unreachable
        return walled_off or self._network.target_down.until > self._network.machine.now

    def _arrive(self, place: Partition, batch: Sequence[Sent]) -> None:
        assert self._network is not None
        network, machine, weather = self._network, self._network.machine, self._network.weather
        if network.target_down.until > machine.now and not self._is_gone:
            machine.after(_AGAIN, partial(self._arrive, place, batch))
            return
        if self._is_gone:
            machine.count("producer: batch that arrives after its producer has ended")
        if network.chance(weather.target_partial):
            error: KafkaError | None = KafkaError(
                KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "the broker has lost its place"
            )
        else:
            error = self._broker.append(place, batch)
        if error is not None:
            machine.count("producer: batch that is refused")
        lost = network.chance(weather.target_broken_after)
        if lost:
            machine.count("producer: lost acknowledgement")
        seconds = machine.random.choice(_LATE) if lost else network.latency()
        machine.after(seconds, partial(self._answered, place, len(batch), error))

    def _answered(self, place: Partition, count: int, error: KafkaError | None) -> None:
        """A batch that is refused is the end of all that is behind it, in each partition."""
        if self._is_gone:
            return
        if self._network is not None and self._process is not None and self._process.frozen:
            self._network.machine.after(_AGAIN, partial(self._answered, place, count, error))
            return
        self._on_their_way.discard(place)
        if error is not None:
            self._refused = error
            self._reports += [topic for (topic, _), queue in self._queues.items() for _ in queue]
            for queue in self._queues.values():
                queue.clear()
        elif self._refused is None:
            for _ in range(count):
                self._queues[place].popleft()
            if any(self._queues.values()):
                self._begin()
        self._changed.wake_all()
