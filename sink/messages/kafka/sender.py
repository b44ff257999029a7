"""`Sender`: sends messages and waits until all of them are acknowledged, as long as a permit allows it.

    send       hands messages to the client, which sends them meanwhile
    settle     returns when each one is with all replicas in sync; any failure fails the run

The order of messages in a partition is that in which they are sent, without gaps, whatever connections break: the producer is idempotent,
and no message is ever given up alone. When the permit ends, or nothing was acknowledged for a while, all that is left is given up
together (`abandon`). So what has arrived of a run is a beginning of it, in each partition, and a run that is repeated repeats that first.
What is under way at that moment may still arrive: it is the next in order, or a repeat, and has the same positions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeAlias

from confluent_kafka import KafkaException

from changefeed.errors import SinkUnavailable
from sink.messages.kafka.kafka_clients import KafkaClients, LentProducer, OpenClients, sink_error, translated
from sink.messages.message_format import KeyedMessage

PATIENCE_SECONDS = 20.0
"""How long nothing may be acknowledged."""
_LOOK_SECONDS = 0.5
_ASK_SECONDS = 3.0


Addressed: TypeAlias = tuple[str, int, KeyedMessage]
"""A message for a topic and a partition."""


class Sender:
    """For one run in one thread. As a context it settles, or abandons after an error."""

    def __init__(
        self, clients: OpenClients, place: str, permit: Callable[[], object], *, patience: float = PATIENCE_SECONDS
    ) -> None:
        """`clients`: with the credentials of now. `permit` raises when nothing may be written any more. `place`: what users call the sink."""
        self._clients = clients
        self._place = place
        self._permit = permit
        self._patience = patience
        self._lent: LentProducer | None = None
        self._taken_from: KafkaClients | None = None
        self._topics: set[str] = set()

    def send(self, messages: Iterable[Addressed]) -> None:
        self._permit()
        lent = self._lent
        if lent is None:
            self._taken_from = self._clients()
            lent = self._lent = self._taken_from.take()
        produce, topics = lent.producer.produce, self._topics  # by position: what has a name costs a fifth more
        for topic, partition, (key, value, headers) in messages:
            topics.add(topic)
            while True:
                try:
                    produce(topic, value, key, partition, None, None, 0, headers)  # type: ignore[arg-type]  # it only reads them
                    break
                except BufferError:
                    self._wait(lent, full=True)
                except KafkaException as error:
                    raise sink_error(f"{self._place}: topic {topic}", error.args[0]) from error
        lent.producer.poll(0)
        self._check(lent)

    def settle(self) -> None:
        lent = self._lent
        if lent is None:
            return
        self._wait(lent, full=False)
        self._lent = None
        self._topics.clear()
        assert self._taken_from is not None
        self._taken_from.give_back(lent)

    def abandon(self) -> None:
        """May be called again."""
        lent, self._lent = self._lent, None
        self._topics.clear()
        if lent is not None:
            lent.producer.purge()
            with suppress(KafkaException):  # it says that what was given up is a gap
                lent.producer.close()

    def _wait(self, lent: LentProducer, *, full: bool) -> None:
        """Until everything is acknowledged; with `full`, until something is."""
        left, moved_at = len(lent.producer), time.monotonic()
        while left:
            self._permit()
            if full:
                lent.producer.poll(_LOOK_SECONDS)
            else:
                lent.producer.flush(_LOOK_SECONDS)
            self._check(lent)
            now = len(lent.producer)
            if now < left:
                left, moved_at = now, time.monotonic()
                if full:
                    return
            elif time.monotonic() >= moved_at + self._patience:
                raise SinkUnavailable(
                    f"{self._place}: expected acknowledgements of {left} messages, found none within {self._patience:.0f} s: {self._why(lent)}"
                )
        self._check(lent)

    def _check(self, lent: LentProducer) -> None:
        if lent.failed:
            error, topic = lent.failed[0]
            raise sink_error(f"{self._place}: topic {topic}", error)
        if lent.trouble is not None and (refused := sink_error(self._place, lent.trouble)).code == "sink_refused":
            raise refused

    def _why(self, lent: LentProducer) -> str:
        try:
            with translated("asking the brokers"):
                found = lent.producer.list_topics(timeout=_ASK_SECONDS).topics
        except Exception as error:  # noqa: BLE001 - it becomes the message of the failure that is being raised
            return str(lent.trouble.str() if lent.trouble is not None else error)
        missing = [topic for topic in sorted(self._topics) if topic not in found or found[topic].error is not None]
        if missing:
            return f"there is no topic {', '.join(missing)}"
        headless = [
            f"{topic}/{number}"
            for topic in sorted(self._topics)
            for number, each in found[topic].partitions.items()
            if each.leader < 0
        ]
        return f"no leader of {', '.join(headless)}" if headless else "the brokers answer, but do not acknowledge"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.settle()
        finally:
            self.abandon()
