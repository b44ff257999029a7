"""`TopicAdmin`: asks the brokers about topics, and creates them. Nothing is ever deleted, and no setting of a topic is changed."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, NewTopic, OffsetSpec
from confluent_kafka.admin._listoffsets import EarliestSpec, LatestSpec

from changefeed.config.sinks.kafka_options import CLEANUP, LEAST_MESSAGE_BYTES, MESSAGE_BYTES, KafkaSinkOptions
from changefeed.errors import DdlRefused, SinkRefused, SinkUnavailable
from changefeed.table import COPIED_AGAIN
from sink.messages.kafka.kafka_clients import OpenClients, sink_error, translated

_SECONDS = 10.0
_SHOWN_WITHIN_SECONDS, _LOOK_AGAIN_SECONDS = 5.0, 0.2
_BATCH = 200
_BROKER_DEFAULT = -1
DEFAULT_LIMIT = 1_048_588
_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)  # noqa: SLF001 - named so by the client
_WITHOUT_LEADER = (
    *_ABSENT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - as above
    KafkaError._NOENT,  # noqa: SLF001 - as above; said if none of those that were asked for has one
)
_OUT_OF_DATE = (
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)
"""What the client knows of leaders. It asks again after five minutes only."""
_NOT_SHOWN = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
_FOR_EVER = {CLEANUP: "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_COMPACTED = {CLEANUP: "compact"}
_COLLIDES = (
    "brokers take no two topics that differ in `.` and `_` alone: if nobody needs the topic that exists, delete it and resume the table (`sluice table "
    f"resume`); else rename a new table at the source and have it {COPIED_AGAIN}, or create another changefeed with topics=DB.COLL:NAME"
)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """`id`: another one if it was deleted and created again. `rights`: what the user may do with it; None if the brokers have no rights."""

    id: str
    partitions: int
    rights: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTopic:
    name: str
    partitions: int
    settings: Mapping[str, str]

    @classmethod
    def of_rows(cls, name: str, options: KafkaSinkOptions) -> AskedTopic:
        """Not compacted by the brokers' default: that would lose rows."""
        settings = {CLEANUP: "delete", **dict(options.settings)}
        return cls(name=name, partitions=options.partitions, settings=settings)

    @classmethod
    def of_no_rows(cls, names: tuple[str, str, str]) -> list[AskedTopic]:
        """Messages of the first two are never removed; the last one has the newest watermark."""
        settings = _FOR_EVER, _FOR_EVER, _COMPACTED
        return [cls(name=name, partitions=1, settings=each) for name, each in zip(names, settings, strict=True)]


class TopicAdmin:
    """In any thread. Each call waits for the brokers.

    Each one keeps the client that it asks until it has its answers: another thread may have it forgotten meanwhile, and a client that nobody
    holds never answers.
    """

    def __init__(self, clients: OpenClients, options: KafkaSinkOptions) -> None:
        self._clients = clients
        self._options = options
        self._place = str(options)

    def check(self) -> str:
        """The id of the cluster. Raises if no broker answers."""
        client = self._client()
        with self._asking("asking for the cluster"):
            return str(client.describe_cluster(request_timeout=_SECONDS).result().cluster_id)

    def existing(self, names: Iterable[str], *, rights: bool = False) -> dict[str, Topic]:
        """Those that exist."""
        client, found = self._client(), dict[str, Topic]()
        for batch in _batches(names):
            with self._asking("asking for topics"):
                asked = client.describe_topics(
                    TopicCollection(batch), include_authorized_operations=rights, request_timeout=_SECONDS
                )
            for name, future in asked.items():
                described = self._answer(f"asking for topic {name}", future, _ABSENT)
                if described is not None:
                    allowed = described.authorized_operations
                    found[name] = Topic(
                        id=str(described.topic_id),
                        partitions=len(described.partitions),
                        rights=frozenset(each.name for each in allowed) if allowed is not None else None,
                    )
        return found

    def shown(self, names: Collection[str]) -> dict[str, Topic]:
        """Those that exist. A broker may show a new topic some time after another one has made it."""
        until = time.monotonic() + _SHOWN_WITHIN_SECONDS
        while len(found := self.existing(names)) < len(names) and time.monotonic() < until:
            time.sleep(_LOOK_AGAIN_SECONDS)
        return found

    def create(self, asked: Sequence[AskedTopic]) -> dict[str, Topic]:
        """Those that do not exist. Returns those that existed. Raises if one of them has another number of partitions than asked for."""
        there = self.existing(each.name for each in asked)
        self._create([each for each in asked if each.name not in there])
        for each in asked:
            if each.name in there:
                self.check_partitions(each.name, there[each.name].partitions, each.partitions)
        return there

    def obstacles(self, asked: Sequence[AskedTopic]) -> Iterator[str]:
        """Why the brokers would not create them. Nothing is created. The same reason is given once, and so are names that collide with others."""
        client, told = self._client(), set[object]()
        for batch in _batches(asked):
            with self._asking("asking whether topics can be created"):
                answers = client.create_topics(
                    [self._new(each) for each in batch], validate_only=True, request_timeout=_SECONDS
                )
            for name, future in answers.items():
                try:
                    future.result()
                except KafkaException as error:
                    code = error.args[0].code()
                    if code == KafkaError.TOPIC_ALREADY_EXISTS:
                        continue
                    problem = str(sink_error("creating topics", error.args[0])).replace(name, "NAME")
                    reason = code if code == KafkaError.TOPIC_EXCEPTION else problem
                    if reason not in told:
                        told.add(reason)
                        yield f"sink: {problem} (first of: {name})"

    def check_partitions(self, name: str, found: int, expected: int) -> None:
        if found != expected:
            raise SinkRefused(
                f"{self._place}: topic {name}: expected {expected} partitions, found {found}; the place of a key follows from their number, which "
                f"is this changefeed's for life: put a topic of {expected} there, or create another changefeed with partitions={found}"
            )

    def limits(self, names: Collection[str]) -> dict[str, int]:
        """The largest message that each topic takes. Kafka's own default where it is not shown."""
        shown, found = self._settings(names), dict[str, int]()
        for name in names:
            found[name] = int(shown[name][MESSAGE_BYTES]) if name in shown else DEFAULT_LIMIT
            if found[name] < LEAST_MESSAGE_BYTES:
                raise SinkRefused(
                    f"{self._place}: topic {name}: expected {MESSAGE_BYTES} of {LEAST_MESSAGE_BYTES} or more, found {found[name]}; raise it"
                )
        return found

    def compacted(self, names: Collection[str]) -> list[str]:
        """Of these topics, those that keep the last message of each key alone, as far as it is shown."""
        return sorted(name for name, said in self._settings(names).items() if _COMPACTED[CLEANUP] in said[CLEANUP])

    def _settings(self, names: Collection[str]) -> dict[str, dict[str, str]]:
        """Of those that are shown."""
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        client, found = self._client(), dict[str, dict[str, str]]()
        for batch in _batches(resources):
            with self._asking("asking for settings of topics"):
                answers = client.describe_configs(batch, request_timeout=_SECONDS)
            for resource, future in answers.items():
                said = self._answer(f"asking for settings of topic {resource.name}", future, _NOT_SHOWN + _ABSENT)
                if said is not None:
                    found[resource.name] = {name: str(said[name].value) for name in (MESSAGE_BYTES, CLEANUP)}
        return found

    def ends(self, topics: Mapping[str, int]) -> dict[tuple[str, int], int]:
        """Where the next message of each partition goes; of those that have a leader."""
        return self._offsets(topics, LatestSpec())  # type: ignore[no-untyped-call]

    def all_ends(self, topics: Mapping[str, int]) -> dict[tuple[str, int], int]:
        """Raises if a partition has no leader: nobody knows where it ends."""
        ends = self.ends(topics)
        for topic, count in topics.items():
            for number in range(count):
                if (topic, number) not in ends:
                    raise SinkUnavailable(
                        f"{self._place}: topic {topic}: partition {number} has no leader, or was deleted: start the brokers that have it"
                    )
        return ends

    def occupied(self, topics: Mapping[str, int]) -> list[str]:
        """Those with messages."""
        ends, begins = self.all_ends(topics), self._offsets(topics, EarliestSpec())  # type: ignore[no-untyped-call]
        return sorted({topic for (topic, number), end in ends.items() if end > begins.get((topic, number), 0)})

    def _offsets(self, topics: Mapping[str, int], spec: OffsetSpec) -> dict[tuple[str, int], int]:
        asked = {TopicPartition(topic, number): spec for topic, count in topics.items() for number in range(count)}
        found: dict[tuple[str, int], int] = {}
        if not asked:
            return found
        client = self._client()
        with self._asking("asking for offsets"):
            answers = client.list_offsets(asked, request_timeout=_SECONDS)
        for partition, future in answers.items():
            answer = self._answer(f"asking for offsets of topic {partition.topic}", future, _WITHOUT_LEADER)
            if answer is not None:
                found[partition.topic, partition.partition] = answer.offset
        if len(found) < len(asked):
            self._clients().forget_admin()  # a topic that was deleted and made again has none for this client, for ever
        return found

    def _create(self, asked: Sequence[AskedTopic]) -> None:
        client = self._client()
        for batch in _batches(asked):
            with self._asking("creating topics"):
                answers = client.create_topics(
                    [self._new(each) for each in batch], operation_timeout=_SECONDS, request_timeout=2 * _SECONDS
                )
            for name, future in answers.items():
                self._created(name, future)

    def _created(self, name: str, future: Future[None]) -> None:
        """Brokers take no topic that differs from one of theirs in `.` and `_` alone. Its table waits then, and no other."""
        with self._asking(f"creating topic {name}"):
            try:
                future.result()
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.TOPIC_EXCEPTION:
                    raise DdlRefused(f"{self._place}: {error.args[0].str()}; {_COLLIDES}") from error
                if code != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def _new(self, asked: AskedTopic) -> NewTopic:
        replicas = self._options.replication or _BROKER_DEFAULT
        return NewTopic(asked.name, asked.partitions, replicas, config=dict(asked.settings))

    def _client(self) -> AdminClient:
        return self._clients().admin

    def _answer(self, what: str, future: Future[T], none: Collection[int]) -> T | None:
        """None for these errors."""
        with self._asking(what):
            try:
                return future.result()
            except KafkaException as error:
                code = error.args[0].code()
                if code in none:
                    return None
                if code in _OUT_OF_DATE:
                    self._clients().forget_admin()
                raise

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        clients = self._clients()
        try:
            with translated(f"{self._place}: {what}"):
                yield
            clients.answered()
        except SinkUnavailable:
            trouble = clients.why()
            if trouble is None:
                raise
            raise sink_error(f"{self._place}: {what}", trouble) from None


def replaced(place: str, topic: str, expected: str, found: str) -> str:
    return (
        f"{place}: topic {topic} was deleted and created again: expected the id {expected}, found {found}; what was in it is gone: have each table of this topic "
        f"{COPIED_AGAIN}, and let consumers begin again (`sluice consume --from-start`)"
    )


def may_write(topic: Topic) -> bool:
    return topic.rights is None or AclOperation.WRITE.name in topic.rights


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    while batch := list(islice(left, _BATCH)):
        yield batch
