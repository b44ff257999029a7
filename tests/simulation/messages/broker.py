"""`ModelBroker`: the topics of a sink in memory, as brokers of Kafka keep them: what is acknowledged has its place in a partition for good.

`tests/component/sink/test_message_contract.py` asks the model what it asks a real broker. `broker_clients.py` has the clients.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from confluent_kafka import KafkaError

Headers: TypeAlias = Sequence[tuple[str, bytes]]
Partition: TypeAlias = tuple[str, int]
_FEW = 4
"""Messages of one key that a compacted topic keeps for a while."""


class Sent(NamedTuple):
    """What a producer sends."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class Record(NamedTuple):
    offset: int
    message: Sent


@dataclass
class ModelTopic:
    name: str
    id: str
    settings: Mapping[str, str]
    partitions: list[list[Record]]
    ends: list[int]
    limit: int = 1_048_588

    @property
    def compacted(self) -> bool:
        return self.settings.get("cleanup.policy") == "compact"


class ModelBroker:
    def __init__(self) -> None:
        self.topics: dict[str, ModelTopic] = {}
        self._created = 0
        self.appended: Callable[[Partition, Sent], None] = lambda partition, message: None
        """Called after each message that has got its place."""
        self.refuses: Callable[[str], bool] = lambda topic: False
        """Whether the user has lost the right to write there."""

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> bool:
        """False: it exists, and stays as it is."""
        if name in self.topics:
            return False
        empty: list[list[Record]] = [[] for _ in range(partitions)]
        self._created += 1
        self.topics[name] = ModelTopic(name, f"id-{self._created}", settings, empty, [0] * partitions)
        return True

    def append(self, partition: Partition, batch: Sequence[Sent]) -> KafkaError | None:
        """All of them, or none."""
        name, number = partition
        topic = self.topics.get(name)
        if topic is None or number >= len(topic.partitions):
            return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"no partition {number} of {name}")
        if self.refuses(name):
            return KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, f"may not write to {name}")
        if topic.compacted and any(message.key is None for message in batch):
            return KafkaError(KafkaError.INVALID_RECORD, "a compacted topic takes no message without a key")
        records = topic.partitions[number]
        for message in batch:
            records.append(Record(topic.ends[number], message))
            topic.ends[number] += 1
            self.appended(partition, message)
        if topic.compacted and len(records) > _FEW:
            newest = {record.message.key: record for record in records}
            topic.partitions[number] = sorted(newest.values(), key=lambda record: record.offset)
        return None

    def read(self, partition: Partition, offset: int, most: int) -> list[Record]:
        name, number = partition
        topic = self.topics.get(name)
        records = topic.partitions[number] if topic is not None else []
        first = bisect_left(records, offset, key=lambda record: record.offset)
        return records[first : first + most]
