"""A run of messages has ended when each one is acknowledged, and no message is handed over without the permit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError

from changefeed.errors import FencedError, SinkRefused, SinkUnavailable
from sink.messages.kafka.sender import Sender
from sink.messages.message_format import KeyedMessage


@dataclass
class Producer:
    """`acknowledged`: how many messages each look finds acknowledged; then none more."""

    acknowledged: list[int]
    produced: list[tuple[str, int]] = field(default_factory=list)
    under_way: int = 0
    purged: bool = False

    def __len__(self) -> int:
        return self.under_way

    def produce(self, topic: str, value: bytes, key: bytes, partition: int, *_: object) -> None:
        self.produced.append((topic, partition))
        self.under_way += 1

    def poll(self, seconds: float) -> int:
        if seconds and self.acknowledged:
            self.under_way -= self.acknowledged.pop(0)
        return self.under_way

    flush = poll

    def purge(self) -> None:
        self.purged = True

    def close(self) -> None: ...

    def list_topics(self, timeout: float) -> Any:
        raise RuntimeError("nobody answers")


@dataclass
class Lent:
    producer: Producer
    failed: list[tuple[KafkaError, str]] = field(default_factory=list)
    trouble: KafkaError | None = None


class Clients:
    """Those of one access, of which one producer is lent."""

    def __init__(self, *acknowledged: int) -> None:
        self.lent = Lent(Producer(list(acknowledged)))
        self.given_back = 0

    def take(self) -> Lent:
        return self.lent

    def give_back(self, lent: Lent) -> None:
        assert len(lent.producer) == 0, "what is under way would be of the next run"
        self.given_back += 1


def _sender(clients: Clients, permit: Callable[[], object] = lambda: None) -> Sender:
    of: Any = lambda: clients  # noqa: E731 - its type is that of the real ones
    return Sender(of, "kafka://b/p", permit, patience=0.0)


def _messages(count: int) -> list[tuple[str, int, KeyedMessage]]:
    return [("rows", number, KeyedMessage(b"k", b"v", [])) for number in range(count)]


def test_a_run_ends_when_each_message_is_acknowledged() -> None:
    clients = Clients(1, 2)
    sender = _sender(clients)
    sender.send(_messages(3))
    assert clients.lent.producer.produced == [("rows", number) for number in range(3)]
    sender.settle()
    assert (len(clients.lent.producer), clients.given_back) == (0, 1)


def test_a_run_whose_messages_are_not_acknowledged_is_given_up_as_a_whole() -> None:
    clients = Clients(1)
    with pytest.raises(SinkUnavailable, match="expected acknowledgements of 2 messages"), _sender(clients) as sender:
        sender.send(_messages(3))
    assert clients.lent.producer.purged
    assert clients.given_back == 0


@pytest.mark.parametrize("at", ["send", "settle"])
def test_one_message_that_failed_fails_the_run(at: str) -> None:
    clients = Clients(3)
    sender = _sender(clients)
    failed = (KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), "rows")
    if at == "send":
        clients.lent.failed.append(failed)
        with pytest.raises(SinkRefused, match="topic rows"):
            sender.send(_messages(3))
    else:
        sender.send(_messages(3))
        clients.lent.failed.append(failed)
        with pytest.raises(SinkRefused, match="topic rows"):
            sender.settle()


@pytest.mark.parametrize(("looks", "produced"), [(0, 0), (1, 3)])
def test_nothing_is_sent_or_awaited_when_the_permit_has_ended(looks: int, produced: int) -> None:
    left = [None] * looks

    def permit() -> None:
        if not left:
            raise FencedError("another node may have the table")
        left.pop()

    clients = Clients(1, 1, 1)
    sender = _sender(clients, permit)
    with pytest.raises(FencedError):
        _sent(sender)
    assert len(clients.lent.producer.produced) == produced


def _sent(sender: Sender) -> None:
    sender.send(_messages(3))
    sender.settle()
