"""A topic that somebody deletes and creates again has another id: whoever writes to it, or reads it, says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from changefeed.errors import MessagesLost, SinkRefused, SinkUnavailable
from devstack.kafka.broker import KafkaBroker
from sink.messages.kafka.kafka_sink import KafkaSink
from sink.messages.kafka.topics import Topics
from sink.sink import TaskTerms
from sluice_client.feed_reader import MessageGap
from tests.component.sink.messages import Messages, in_topics
from tests.component.sink.vocabulary import A, described, insert, moment, named
from tests.until import PATIENCE_SECONDS, until


@pytest.fixture
def messages(kafka: KafkaBroker) -> Iterator[Messages]:
    """With a row, and a mark behind it."""
    with closing(in_topics(kafka)) as made:
        made.claim(described())
        until(lambda: _written(made, 101), "the topic has a leader")
        made.mark(110)
        yield made


def _written(messages: Messages, at: int) -> bool:
    """For a moment after a topic was made nobody leads it."""
    try:
        messages.window(100, 110, [insert(A, at, 1)])
    except SinkUnavailable:
        return False
    return True


def _create_again(kafka: KafkaBroker, messages: Messages) -> None:
    """Within less time than anybody looks."""
    admin, topic = AdminClient(kafka.client), _topic(messages)
    admin.delete_topics([topic], operation_timeout=30)[topic].result(PATIENCE_SECONDS)

    def created() -> bool:
        try:
            admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(PATIENCE_SECONDS)
        except KafkaException:
            return False
        return True

    until(created, "the topic is gone")
    until(lambda: _readable(messages), "the topic has a leader")


def _readable(messages: Messages) -> bool:
    try:
        messages.read()
    except MessageGap:
        return True
    except SinkUnavailable:
        return False
    raise AssertionError("the new topic was not seen")


def _topic(messages: Messages) -> str:
    assert isinstance(messages.sink, KafkaSink)
    return Topics(messages.sink._options).of(named("a"))


def test_its_table_is_refused_until_it_is_copied_again(kafka: KafkaBroker, messages: Messages) -> None:
    assert isinstance(messages.sink, KafkaSink)
    known = messages.sink.writer(TaskTerms(epoch=7))
    known.begin(lambda _: False).prepare([insert(A, 102, 1)], replay=False)()
    _create_again(kafka, messages)
    known._facts._checked_at.clear()  # as half a minute later
    for writer in (known, messages.sink.writer(TaskTerms(epoch=8))):
        with pytest.raises(MessagesLost, match=r"was deleted and created again.*sluice table recopy") as lost:
            writer.begin(lambda _: False).prepare([insert(A, 111, 1)], replay=False)()
        assert lost.value.table == A
    with pytest.raises(SinkRefused, match="was deleted and created again"):
        messages.ddl.begin([described()])
    messages.begin_again(112)
    until(lambda: _written(messages, 113), "the topic has a leader")


def test_a_reader_finds_a_gap(kafka: KafkaBroker, messages: Messages) -> None:
    """Also one that begins: nothing but the id tells that the topic is not whole."""
    reads = messages.reader()
    assert messages.read(reads) == ["schema shop.a", "i1@101"]
    mark, bookmark = reads.mark, reads.bookmark
    _create_again(kafka, messages)
    messages.mark(120)
    went_on = messages.reader()
    list(went_on.skim(mark, bookmark))
    for reader in (reads, went_on, messages.reader()):
        with pytest.raises(MessageGap, match="was deleted and created again"):
            messages.read(reader)
    messages.begin_again(130)
    again = (described(A, at=moment(130)),)
    until(lambda: _copied(messages, again), "the topic has a leader")
    messages.copied(130, 133)
    messages.mark(140)
    assert messages.read()[-5:] == ["recopy shop.a", "copy", "schema shop.a", "r2@132", "copied"]
    with pytest.raises(MessageGap, match="--from-start"):
        messages.read(went_on)


def _copied(messages: Messages, again: tuple[object, ...]) -> bool:
    try:
        messages.copy(130, 132, [{"_id": 2, "at": 132}], tables=again)  # type: ignore[arg-type]
    except SinkUnavailable:
        return False
    return True
