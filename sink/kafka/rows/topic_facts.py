"""`TopicFacts`: what a writer has to know of a topic, asked again now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from changefeed.errors import SinkRefused
from sink.kafka.brokers.topic_admin import TopicAdmin

_GOOD_FOR_SECONDS = 30.0
_SHOWN_WITHIN_SECONDS, _LOOK_AGAIN_SECONDS = 5.0, 0.2
"""A broker may show a new topic some time after another one has made it."""


class TopicFacts:
    def __init__(
        self,
        admin: TopicAdmin,
        place: str,
        partitions: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """`partitions`: those that each topic of rows has for life."""
        self._admin = admin
        self._place = place
        self._partitions = partitions
        self._monotonic = monotonic
        self._pause = pause
        self._checked_at: dict[str, float] = {}
        self._limits: dict[str, tuple[int, float]] = {}

    def check(self, topics: Iterable[str]) -> None:
        """Raises if one of them does not exist, or has another number of partitions."""
        now = self._monotonic()
        due = [topic for topic in topics if now >= self._checked_at.get(topic, 0.0)]
        if not due:
            return
        found = self._admin.existing(due)
        until = self._monotonic() + _SHOWN_WITHIN_SECONDS
        while len(found) < len(due) and self._monotonic() < until:
            self._pause(_LOOK_AGAIN_SECONDS)
            found = self._admin.existing(due)
        for topic in due:
            if topic not in found:
                raise SinkRefused(
                    f"{self._place}: expected a topic {topic}, found none; it was deleted, with all messages in it: create it with "
                    f"{self._partitions} partitions to go on without them, or create another changefeed"
                )
            self._admin.check_partitions(topic, found[topic].partitions, self._partitions)
            self._checked_at[topic] = now + _GOOD_FOR_SECONDS

    def limit(self, topic: str) -> int:
        """The largest message that it takes."""
        now = self._monotonic()
        limit, until = self._limits.get(topic, (0, 0.0))
        if now >= until:
            limit = self._admin.limits([topic])[topic]
            self._limits[topic] = limit, now + _GOOD_FOR_SECONDS
        return limit

    def forget(self) -> None:
        """After an error, everything is asked again."""
        self._checked_at.clear()
        self._limits.clear()
