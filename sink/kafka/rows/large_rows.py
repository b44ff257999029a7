"""`LargeRows`: what becomes of a message that is larger than its topic takes.

fail          its table stops, and all others go on
key_only      the message has no more than its key and headers say
claim_check   the message is in a file, and what is sent says where. The file is written before, by a put that does nothing at a repeat
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from changefeed.config.sinks.kafka_sink import LargeRow
from changefeed.errors import RowRejected
from changefeed.table import TableId
from sink.kafka.brokers.clients import BATCH_BYTES
from sink.kafka.brokers.sender import Addressed
from sink.kafka.rows.topic_facts import TopicFacts
from sink.messages.files.store import Store
from sink.messages.message_format import POS, TABLE, KeyedMessage, claim_check, claim_name, key_only

_FRAME = 512
"""What a broker counts around a message."""
_MOST_SHOWN = 100
_SMALL = BATCH_BYTES - 2048
"""With key and value of less than this, each topic takes it."""


class LargeRows:
    def __init__(self, how: LargeRow, claims: Store | None, facts: TopicFacts, place: str) -> None:
        """`claims`: where the files are, with `claim_check`."""
        self._how = how
        self._claims = claims
        self._facts = facts
        self._place = place

    def fitted(self, messages: Iterable[Addressed], sizes: Sequence[int]) -> Iterable[Addressed]:
        """`sizes`: of keys and values."""
        return messages if max(sizes, default=0) < _SMALL else self._each(messages, sizes)

    def _each(self, messages: Iterable[Addressed], sizes: Sequence[int]) -> Iterator[Addressed]:
        """A generator: each file is written before its message is sent."""
        for (topic, partition, message), content in zip(messages, sizes, strict=True):
            if content < _SMALL or (size := message.size + _FRAME) <= (limit := self._facts.limit(topic)):
                yield topic, partition, message
            else:
                yield topic, partition, self._reduced(topic, message, size, limit)

    def _reduced(self, topic: str, message: KeyedMessage, size: int, limit: int) -> KeyedMessage:
        headers = dict(message.headers)
        if self._how is LargeRow.KEY_ONLY:
            return key_only(message)
        if self._how is LargeRow.CLAIM_CHECK and self._claims is not None:
            name = claim_name(message)
            self._claims.create(name, message.value or b"")
            return claim_check(message, f"{self._claims}/{name}")
        key = (message.key or b"")[:_MOST_SHOWN].decode(errors="replace")
        raise RowRejected(
            f"{self._place}: topic {topic}: the row {key} at {headers[POS].decode()} has {size} bytes as a message, expected at most "
            f"{limit} (max.message.bytes); raise it and resume the table, or create a changefeed with large=claim_check or large=key_only"
        ).about(TableId(headers[TABLE].decode()))
