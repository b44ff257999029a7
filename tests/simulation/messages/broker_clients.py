"""`BrokerClients`: stands in for the clients of Kafka: administration and consumers. `producer.py` has the producers.

With a network each call is one request, which may be lost, late, or without an answer. Not modelled: brokers that do not know of a new topic yet,
partitions without a leader, messages that brokers lose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec
from confluent_kafka.admin._listoffsets import EarliestSpec

from tests.simulation.clockwork.machine import Process
from tests.simulation.clockwork.network import CONNECTION_TIMEOUT, Network
from tests.simulation.messages.broker import ModelBroker, ModelTopic, Partition
from tests.simulation.messages.producer import ModelProducer

T = TypeVar("T")

LATE = (0.01, 0.5, 3.0, 10.0)
"""Seconds after which a request arrives whose client has given up."""


class Answer(Generic[T]):
    """Stands in for a future whose request is over."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._found: T | None = None
        self._error: KafkaException | None = None
        try:
            self._found = ask()
        except KafkaException as error:
            self._error = error

    def result(self) -> T | None:
        if self._error is not None:
            raise self._error
        return self._found


class BrokerClients:
    """What `confluent_kafka` has, by the names under which the product imports it."""

    def __init__(self, broker: ModelBroker, network: Network | None = None) -> None:
        self.broker = broker
        self.network = network

    def producer(self, settings: Mapping[str, Any], **_: object) -> ModelProducer:
        return ModelProducer(self.broker, self.network, settings)

    def admin(self, *_: object, **__: object) -> ModelAdmin:
        return ModelAdmin(self)

    def consumer(self, settings: Mapping[str, Any]) -> ModelConsumer:
        return ModelConsumer(self, settings)

    def ask(self, effect: Callable[[], T], *, changes: bool = False) -> T:
        """One request. Raises if there is no answer."""
        network = self.network
        if network is None:
            return effect()
        machine = network.machine
        network.move()
        if network.target_down.until > machine.now or network.walled_off("the target"):
            machine.sleep(CONNECTION_TIMEOUT)
            raise _unanswered("no broker answers")
        if network.chance(network.weather.target_broken_before):
            if changes and machine.random.random() < 0.5:
                machine.count("broker: request that arrives late")
                machine.after(machine.random.choice(LATE), effect)
            raise _unanswered("the request was given up")
        result = effect()
        if network.chance(network.weather.target_broken_after):
            machine.count("broker: lost answer")
            raise _unanswered("the answer was lost")
        network.move()
        return result


class ClientsByProcess:
    """Stands in for the clients that a process keeps."""

    def __init__(self, process: Callable[[], Process]) -> None:
        self._process = process
        self._kept: dict[Process, dict[object, object]] = {}

    def pop(self, key: object, other: object) -> object:
        return self._kept.setdefault(self._process(), {}).pop(key, other)

    def __setitem__(self, key: object, clients: object) -> None:
        self._kept.setdefault(self._process(), {})[key] = clients

    def __delitem__(self, key: object) -> None:
        del self._kept[self._process()][key]

    def __iter__(self) -> Iterator[object]:
        return iter(self._kept.get(self._process(), ()))


class ModelAdmin:
    def __init__(self, clients: BrokerClients) -> None:
        self._clients = clients
        self._broker = clients.broker

    def poll(self, _: float) -> int:
        return 0

    def describe_cluster(self, **_: object) -> Answer[Any]:
        return Answer(lambda: self._clients.ask(lambda: SimpleNamespace(cluster_id="model")))

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, **_: object
    ) -> dict[str, Answer[None]]:
        return self._all({topic.topic: partial(self._create, topic, validate_only) for topic in topics}, changes=True)

    def _create(self, topic: NewTopic, validate_only: bool) -> None:
        there = topic.topic in self._broker.topics
        if not there and not validate_only:
            self._broker.create(topic.topic, topic.num_partitions, topic.config or {})
        if there:
            raise KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS, f"{topic.topic} exists"))

    def describe_topics(self, topics: TopicCollection, **_: object) -> dict[str, Answer[Any]]:
        return self._all({name: partial(self._described, name) for name in topics.topic_names})

    def _described(self, name: str) -> Any:
        topic = self._known(name)
        return SimpleNamespace(topic_id=topic.id, partitions=topic.partitions, authorized_operations=None)

    def describe_configs(self, resources: Iterable[ConfigResource], **_: object) -> dict[ConfigResource, Answer[Any]]:
        return self._all({resource: partial(self._configured, resource.name) for resource in resources})

    def _configured(self, name: str) -> dict[str, Any]:
        topic = self._known(name)
        settings = {
            "max.message.bytes": str(topic.limit),
            "cleanup.policy": topic.settings.get("cleanup.policy", "delete"),
        }
        return {setting: SimpleNamespace(value=value) for setting, value in settings.items()}

    def list_offsets(
        self, asked: Mapping[TopicPartition, OffsetSpec], **_: object
    ) -> dict[TopicPartition, Answer[Any]]:
        return self._all({place: partial(self._offset, place, spec) for place, spec in asked.items()})

    def _offset(self, place: TopicPartition, spec: OffsetSpec) -> Any:
        topic = self._known(place.topic)
        if place.partition >= len(topic.partitions):
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"no {place}"))
        records, end = topic.partitions[place.partition], topic.ends[place.partition]
        first = records[0].offset if records else end
        return SimpleNamespace(offset=first if isinstance(spec, EarliestSpec) else end)

    def _known(self, name: str) -> ModelTopic:
        topic = self._broker.topics.get(name)
        if topic is None:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"no topic {name}"))
        return topic

    def _all(self, effects: Mapping[Any, Callable[[], Any]], *, changes: bool = False) -> dict[Any, Answer[Any]]:
        """One request, with an answer for each."""

        def carried_out() -> dict[Any, Answer[Any]]:
            return {name: Answer(effect) for name, effect in effects.items()}

        try:
            return self._clients.ask(carried_out, changes=changes)
        except KafkaException as error:
            unanswered = error

            def fail() -> None:
                raise unanswered

            return {name: Answer(fail) for name in effects}


class _Read:
    """Stands in for `Message`: a record, or the end of a partition."""

    def __init__(self, partition: Partition, offset: int, message: Any = None) -> None:
        self._partition, self._offset, self._message = partition, offset, message

    def topic(self) -> str:
        return self._partition[0]

    def partition(self) -> int:
        return self._partition[1]

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        key: bytes | None = self._message.key
        return key

    def value(self) -> bytes | None:
        value: bytes | None = self._message.value
        return value

    def headers(self) -> list[tuple[str, bytes]]:
        return list(self._message.headers)

    def error(self) -> KafkaError | None:
        return None if self._message is not None else KafkaError(KafkaError._PARTITION_EOF)


class ModelConsumer:
    """Says once of each partition that it is at its end, if it is asked to."""

    def __init__(self, clients: BrokerClients, settings: Mapping[str, Any]) -> None:
        self._clients = clients
        self._tells_ends = bool(settings.get("enable.partition.eof"))
        self._next: dict[Partition, int] = {}

    def assign(self, places: Iterable[TopicPartition]) -> None:
        self._next = {(place.topic, place.partition): max(place.offset, 0) for place in places}

    def poll(self, seconds: float) -> Any:
        found = self.consume(1, seconds)
        return found[0] if found else None

    def consume(self, most: int, seconds: float) -> list[Message]:
        try:
            found = self._clients.ask(lambda: self._read(most))
        except KafkaException:
            found = []
        if not found and self._clients.network is not None:
            self._clients.network.machine.sleep(seconds)
        return found

    def _read(self, most: int) -> list[Any]:
        found: list[Any] = []
        for partition, following in self._next.items():
            records = self._clients.broker.read(partition, following, most - len(found))
            found += [_Read(partition, record.offset, record.message) for record in records]
            if records:
                self._next[partition] = records[-1].offset + 1
            elif self._tells_ends:
                found.append(_Read(partition, following))
        return found

    def close(self) -> None:
        """It holds nothing."""


def _unanswered(why: str) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, why))
