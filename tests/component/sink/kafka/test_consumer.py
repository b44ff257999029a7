"""What is special of the reader of topics: what was removed, what was too large, what is much, and the rights that it needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from changefeed.errors import ConfigurationError, NotFoundError, SinkRefused
from devstack.kafka.broker import KafkaBroker
from devstack.kafka.security import KafkaSecurity
from devstack.mongodb.security import ADMINISTRATOR
from sink.messages.files.directory import open_store
from sink.messages.kafka import topic_reader
from sink.messages.kafka.kafka_clients import kafka_clients
from sink.messages.kafka.kafka_reader import KafkaReader
from sluice_client.feed_reader import MessageGap, StoredMessage
from tests.component.sink.kafka.feed import KafkaFeed
from tests.component.sink.kafka.seen import seen
from tests.component.sink.vocabulary import LIFE, A, B, described, insert, moment, named, text_of
from tests.until import PATIENCE_SECONDS, until


def _mark(feed: KafkaFeed, at: int) -> None:
    feed.sink.marks().mark(moment(at), {}, [named("a")])


@contextmanager
def _reader(feed: KafkaFeed, **options: Any) -> Iterator[KafkaReader]:
    with closing(KafkaReader(partial(kafka_clients, feed.options), feed.options, **options)) as reader:
        assert reader.identity() == ("orders", LIFE)
        yield reader


def _shown(reader: KafkaReader) -> list[str]:
    round = reader.look()
    return [text_of(shown.content) for shown in reader.read(round)] if round is not None else []


def test_topics_of_no_changefeed_are_not_read(kafka: KafkaBroker) -> None:
    with pytest.raises(NotFoundError, match="no changefeed has written"), _reader(KafkaFeed(kafka)):
        pass


def test_what_is_much_is_shown_in_several_rounds(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one topic, so that each partition has all watermarks, whichever is read last."""
    feed = KafkaFeed(kafka, "encoding=bson&topic={prefix}.all")
    feed.claim()
    for at in (110, 120, 130):
        feed.window([insert(A, at + n, n) for n in range(9)])
        _mark(feed, at + 10)
    with _reader(feed) as reader:
        at_once = _shown(reader)
        assert at_once == ["schema shop.a", *(f"i{n}@{at + n}" for at in (110, 120, 130) for n in range(9))]
        assert not reader.more
    monkeypatch.setattr(topic_reader, "AT_ONCE", 3)
    monkeypatch.setattr(topic_reader, "MANY", 5)
    rounds: list[list[str]] = []
    with _reader(feed) as reader:
        while (round := reader.look()) is not None:
            rounds.append([text_of(shown.content) for shown in reader.read(round)])
            assert reader.more is (reader.mark.at < moment(140))
    assert len(rounds) > 1
    assert list(chain.from_iterable(rounds)) == at_once


def test_rules_send_tables_elsewhere_and_a_reader_with_the_same_uri_finds_them(kafka: KafkaBroker) -> None:
    feed = KafkaFeed(kafka, "topics=shop.a:{prefix}.one:table&partitions=3")
    feed.claim(described(A), described(B, "b"))
    feed.window([insert(A, 101 + n, n) for n in range(9)] + [insert(B, 111 + n, n, "b") for n in range(9)])
    feed.sink.marks().mark(moment(130), {}, [named("a"), named("b")])
    with _reader(feed) as reader:
        shown = _shown(reader)
        assert shown[-18:] == [f"i{n}@{at + n}" for at in (101, 111) for n in range(9)]
        filled = {topic: offsets for topic, (_, offsets) in json.loads(reader.bookmark).items()}
    assert filled.keys() == {f"{feed.prefix}.one", f"{feed.prefix}.shop.b"}
    with_rows = {each.partition for each in seen(kafka, f"{feed.prefix}.one") if each.key is not None}
    assert len(with_rows) == 1, "all rows of the table are in one partition"


def test_what_was_removed_after_a_bookmark_is_not_missed(kafka: KafkaBroker) -> None:
    feed = KafkaFeed(kafka)
    feed.claim()
    feed.window([insert(A, 101 + n, n) for n in range(20)])
    _mark(feed, 130)
    with _reader(feed) as reader:
        _shown(reader)
        feed.window([insert(A, 131 + n, n) for n in range(20)])
        _mark(feed, 160)
        round, bookmark = reader.look(), reader.bookmark
        assert round is not None
        shown = [text_of(shown.content) for shown in reader.read(round)]
    topic = feed.topics.of(named("a"))
    ends = {number for number in range(6) if f'"{number}": 0' not in bookmark}
    removed = [TopicPartition(topic, number, 1) for number in ends]
    assert removed
    admin = AdminClient(kafka.client)
    for future in admin.delete_records(removed).values():
        future.result(PATIENCE_SECONDS)
    with _reader(feed) as reader:
        list(reader.skim(round.before, bookmark))
        assert [text_of(shown.content) for shown in reader.read(round)] == shown
    with _reader(feed) as reader, pytest.raises(MessageGap, match="some were removed"):
        _shown(reader)


def test_a_message_that_was_removed_from_between_others_is_a_gap(kafka: KafkaBroker) -> None:
    """The end of a transaction has an offset, too, and no message."""
    feed = KafkaFeed(kafka)
    feed.claim()
    topic = feed.topics.of(named("a"))
    producer = Producer({**kafka.client, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"other", partition=0)
    producer.commit_transaction(30)
    feed.window([insert(A, 200 + n, n) for n in range(30)])
    _mark(feed, 300)
    with _reader(feed) as reader, pytest.raises(MessageGap, match="no compaction"):
        _shown(reader)


@pytest.mark.parametrize("large", ["claim_check", "key_only"])
def test_a_message_that_was_too_large_is_found_where_it_is(kafka: KafkaBroker, tmp_path: Path, large: str) -> None:
    claims = f"&claims=file%3A%2F%2F{tmp_path}" if large == "claim_check" else ""
    feed = KafkaFeed(kafka, f"large={large}{claims}")
    feed.claim()
    feed.window([insert(A, 200, 1, size=2 << 20), insert(A, 200, 2, size=0)])
    _mark(feed, 210)
    if large == "key_only":
        with _reader(feed, whole=True) as reader, pytest.raises(MessageGap, match="only its key"):
            _shown(reader)
        return
    place = feed.options.claims
    assert place is not None
    with _reader(feed, claims=open_store(place)) as reader:
        round = reader.look()
        assert round is not None
        messages = [shown.content for shown in reader.read(round)]
        sizes = [
            len(each.fields["after"]["text"])
            for each in messages
            if isinstance(each, StoredMessage)
            if "after" in each.fields
        ]
        assert sorted(sizes) == [0, 2 << 20]
    with _reader(feed) as reader, pytest.raises(ConfigurationError, match="claims="):
        _shown(reader)
    for file in chain.from_iterable(folder.iterdir() for folder in (tmp_path / "claim").iterdir()):
        file.write_bytes(b"other")
    with _reader(feed, claims=open_store(place)) as reader, pytest.raises(MessageGap, match="restore it"):
        _shown(reader)


@pytest.mark.soak
def test_a_user_who_may_only_read_can_consume(own_kafka: Callable[..., KafkaBroker]) -> None:
    """READ on the topics with the prefix, and nothing else: no consumer group, no rights on the cluster."""
    security = KafkaSecurity(["reader"])
    broker = own_kafka(security=security)
    name, password = ADMINISTRATOR, security.passwords[ADMINISTRATOR]
    feed = KafkaFeed(broker, "sasl=PLAIN", user=f"{name}:{password}@")
    feed.claim()
    feed.window([insert(A, 200, 1)])
    _mark(feed, 210)
    feed.open("sasl=PLAIN", user=f"reader:{security.passwords['reader']}@")
    with pytest.raises(SinkRefused, match="rights"):
        _identity(feed)
    allowed = AclBinding(
        *(ResourceType.TOPIC, feed.prefix, ResourcePatternType.PREFIXED, "User:reader", "*"),
        *(AclOperation.READ, AclPermissionType.ALLOW),
    )
    admin = AdminClient(broker.client)
    for answer in admin.create_acls([allowed]).values():
        answer.result(PATIENCE_SECONDS)
    until(lambda: _identity(feed, refused=True), "a right that was granted")
    with _reader(feed) as reader:
        assert _shown(reader) == ["schema shop.a", "i1@200"]


def _identity(feed: KafkaFeed, *, refused: bool = False) -> bool:
    """`refused`: a broker may not know yet what it was told about rights."""
    try:
        with _reader(feed):
            return True
    except SinkRefused:
        if refused:
            return False
        raise
