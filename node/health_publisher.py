"""`HealthPublisher`: keeps the health in a node's own record in etcd up to date, with few writes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import structlog

from changefeed.errors import ConflictError, FencedError, RetryableError
from changefeed.records.node import NodeHealth, NodeRecord
from coordination.etcd.protocol import Etcd, KeyValue, ModRevIs, Put
from coordination.fenced import compare_and_swap
from coordination.layout import encode

_SAME_STATE_EVERY = timedelta(minutes=1)
"""How often another error of a node that is not ready is written: a Spark that starts in vain may say something else each time."""

_log = structlog.get_logger()


class HealthPublisher:
    """For one thread. A write keeps the key, its lease and everything else in the record, such as a drain."""

    def __init__(self, etcd: Etcd, key: str) -> None:
        self._etcd = etcd
        self._key = key
        self._written_at = float("-inf")

    def publish(self, record: NodeRecord, found: KeyValue, health: NodeHealth, now: float) -> None:
        """`found`: the record as the mirror has it. If it has changed since, a later call writes. `now`: monotonic seconds.

        Where the lease is over, so is the node, which its session finds out by itself.
        """
        if not self._due(record.health, health, now):
            return
        if self._written(replace(record, health=health), found, found.lease):
            self._written_at = now
            _log.info("health_published", ready=health.ready, error=health.error and health.error.message)

    def restore(self, last: NodeRecord, found: KeyValue, lease: int) -> None:
        """Instead of a record that nobody can read. It may have lost its lease with its content."""
        if self._written(last, found, lease):
            _log.warning("own_record_restored", key=self._key, found_bytes=len(found.value))

    def _written(self, record: NodeRecord, found: KeyValue, lease: int) -> bool:
        put = Put(self._key, encode(record), lease)
        try:
            compare_and_swap(self._etcd, (ModRevIs(self._key, found.mod_rev),), (put,))
        except (ConflictError, FencedError, RetryableError) as error:
            _log.info("health_not_published_yet", error=str(error))
            return False
        return True

    def _due(self, before: NodeHealth | None, health: NodeHealth, now: float) -> bool:
        if before is None or before.ready is not health.ready:
            return True
        news = _said(before) != _said(health)
        return news and now - self._written_at >= _SAME_STATE_EVERY.total_seconds()


def _said(health: NodeHealth) -> tuple[str, str] | None:
    return (health.error.code, health.error.message) if health.error is not None else None
