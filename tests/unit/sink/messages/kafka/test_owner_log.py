"""What an owner says into topics: to which partitions, and how far everything is there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Self

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.config.sinks.message_options import FormatName, MessageOptions
from changefeed.documents.document import Document
from changefeed.errors import DdlRefused, SinkRefused, TargetOccupied
from changefeed.event import DdlType
from changefeed.position import Position
from changefeed.records.ddl import Observation, Scope
from changefeed.table import TableId, TableName, TableSchema
from sink.ddl import BeginAgain, CreateTable, RenameTable
from sink.messages.formats import message_format
from sink.messages.kafka import owner_log
from sink.messages.kafka.feed_topic import FeedTopic
from sink.messages.kafka.owner_log import KafkaDdlApplier, KafkaMarks, OwnerSender
from sink.messages.kafka.topic_admin import AskedTopic
from sink.messages.message_format import KeyedMessage
from sluice_client.pos import pos_of
from tests.unit.sink.messages.changes import record

OPTIONS = KafkaSinkOptions.parse("kafka://b/shop?partitions=3")
FORMAT = message_format("orders", "shop", OPTIONS.messages)
A, B = TableName("s", "a"), TableName("s", "b")


def at(increment: int) -> Position:
    return Position(ClusterTime(100, increment))


class Brokers:
    """In place of brokers: the topics that there are, where their partitions end, and what was sent, in order."""

    def __init__(self, **topics: int) -> None:
        self.topics = {f"shop.s.{name}": count for name, count in topics.items()}
        self.sent: list[tuple[str, int, KeyedMessage]] = []

    def create(self, asked: Iterable[AskedTopic]) -> dict[str, Any]:
        names = [each.name for each in asked]
        there = self.existing(names)
        self.topics |= dict.fromkeys(names, 3)
        return there

    def shown(self, names: Iterable[str]) -> dict[str, Any]:
        return self.existing(names)

    def existing(self, names: Iterable[str]) -> dict[str, Any]:
        return {name: self for name in names if name in self.topics}

    id = "of now"

    @property
    def partitions(self) -> int:
        return 3

    def ends(self, topics: Mapping[str, int]) -> dict[tuple[str, int], int]:
        places = [(topic, number) for topic, count in topics.items() for number in range(count)]
        return {place: sum(sent[:2] == place for sent in self.sent) for place in places}

    def to(self, topic: str) -> list[int]:
        return [partition for name, partition, _ in self.sent if name == topic]


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    """A sender waits for the acknowledgement of each message; it has tests of its own."""
    brokers = Brokers(a=3)

    class Acknowledged:
        def __init__(self, *_: object) -> None: ...

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def send(self, messages: Iterable[tuple[str, int, KeyedMessage]]) -> None:
            brokers.sent += messages

    monkeypatch.setattr(owner_log, "Sender", Acknowledged)
    monkeypatch.setattr(owner_log, "TopicAdmin", lambda *_: brokers)
    return brokers


class Told:
    """In place of the topic that says whose topics these are."""

    def __init__(self, topics: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.topics, self.tables = topics, dict[str, str]()
        monkeypatch.setattr(FeedTopic, "ids", lambda _: dict(self.topics))
        monkeypatch.setattr(FeedTopic, "tables", lambda _: dict(self.tables))
        monkeypatch.setattr(FeedTopic, "say", lambda _, **told: self._say(**told))

    def _say(self, topics: dict[str, str] | None = None, tables: dict[str, str] | None = None) -> None:
        self.topics |= topics or {}
        self.tables |= tables or {}


def _topic(life: str = "c/1", options: KafkaSinkOptions = OPTIONS) -> FeedTopic:
    clients: Any = None
    return FeedTopic(clients, options, "orders", life, lambda: None)


def _sender(options: KafkaSinkOptions = OPTIONS) -> OwnerSender:
    return OwnerSender(_topic(options=options), in_band=FORMAT.in_band)


def test_what_is_said_goes_to_each_partition_of_its_tables_and_to_the_topic_of_all_ddl(brokers: Brokers) -> None:
    """A consumer of any partition sees it in its place. A table without a topic has no row before it."""
    _sender().say(KeyedMessage(None, b"ddl", []), [A, B])
    assert brokers.to("shop.s.a") == [0, 1, 2]
    assert brokers.to("shop.s.b") == []
    assert brokers.to("shop.ddl") == [0]


@pytest.mark.parametrize("format", FormatName)
def test_a_table_that_begins_again_takes_its_topic_as_it_is_now(
    format: FormatName, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was deleted, and created again."""
    told = Told({"shop.s.a": "of before"}, monkeypatch)
    made = KafkaDdlApplier(_sender(), message_format("orders", "shop", MessageOptions(format=format)))
    schema = TableSchema(id=TableId("aa" * 16), name=A, valid_from=at(9))
    again = replace(record(DdlType.ENTER), scope=Scope(apart=frozenset({schema.id})))
    with pytest.raises(SinkRefused, match="was deleted and created again"):
        made.begin([(schema, A)])
    made.apply(BeginAgain(name=A, schema=schema), Observation(tables={}), again)
    assert told.topics == {"shop.s.a": brokers.id}
    made.begin([(schema, A)])


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_compacted_topic_is_of_one_table(policy: str, brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names become one name where a topic may not have their signs, and a key names no table."""
    options = KafkaSinkOptions.parse(f"kafka://b/shop?partitions=3&format=mongodb&topic.cleanup.policy={policy}")
    one, other, plain = (TableName("crm", name) for name in ("客户", "订单", "__"))
    made = KafkaDdlApplier(_sender(options), message_format("orders", "shop", options.messages))
    nothing, told = Observation(tables={}), Told({}, monkeypatch)
    assert len({made._sender.topics.of(name) for name in (one, other, plain)}) == 1

    def rename(name: TableName, to: TableName) -> None:
        renamed = replace(record(DdlType.RENAME), event=replace(record(DdlType.RENAME).event, renamed_to=to))
        made.apply(RenameTable(name=name, to=to, replaces=False), nothing, renamed)

    create = CreateTable(name=other, options=Document.of({}))
    for _ in range(2):
        made.apply(replace(create, name=one), nothing, record(DdlType.CREATE))
    if policy == "delete":
        made.apply(create, nothing, record(DdlType.CREATE))
        assert not told.tables
        return
    for refused in (lambda: made.apply(create, nothing, record(DdlType.CREATE)), lambda: rename(A, plain)):
        with pytest.raises(DdlRefused, match=r"shop.crm.__, which is compacted and has those of crm.客户.*topics="):
            refused()
    rename(one, plain)
    assert told.tables == {"shop.crm.__": "crm.__"}


def _marked(behind: Mapping[TableId, Position], brokers: Brokers) -> dict[str, Any]:
    marks = KafkaMarks(_sender(), FORMAT, 3, monotonic=lambda: 0.0)
    marks.mark(at(9), behind, [A])
    topic, _, message = brokers.sent[-1]
    assert topic == "shop.watermark"
    found: dict[str, Any] = json.loads(message.value or b"")
    return found


def test_a_watermark_names_the_tables_that_are_behind_it(brokers: Brokers) -> None:
    found = _marked({TableId("b"): at(5)}, brokers)
    assert found["pos"] == pos_of(at(9))
    assert pos_of(at(5)) in str(found)
    assert brokers.to("shop.s.a") == [0, 1, 2], "each partition has it in-band"


def test_a_watermark_is_as_far_as_the_hindmost_of_many_tables(brokers: Brokers) -> None:
    many = {TableId(f"{number:04d}"): at(5 + number % 3) for number in range(1_001)}
    assert _marked(many, brokers)["pos"] == pos_of(at(5))


@pytest.mark.parametrize(
    ("first", "refused"),
    [("c/1", False), ("c/2", True)],
    ids=["its own", "of another life"],
)
def test_topics_are_those_of_whoever_claimed_them_first(
    first: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = json.dumps(_topic(first)._said).encode()
    monkeypatch.setattr(FeedTopic, "first", lambda _: claimed)
    if refused:
        with pytest.raises(TargetOccupied, match="a changefeed that begins again needs another prefix"):
            _topic().confirm()
    else:
        _topic().confirm()
