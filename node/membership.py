"""`Membership`: a node's roles during one session.

The roles detect the loss of the session themselves and stop at once; the node then gets a new membership under a new id. An
owner that resigned, or that lost only its owner key, becomes a candidate again in the same session.

`HealthPublisher` keeps the health in the node's own record in etcd up to date, with few writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Self

import structlog

from changefeed.errors import ConflictError, FencedError, RecordUnreadable, RetryableError
from changefeed.records.node import NodeHealth, NodeId, NodeRecord
from changefeed.records.requests import ChangefeedId
from coordination.election import Candidate
from coordination.etcd.protocol import Etcd, KeyValue, ModRevIs, Put
from coordination.fenced import compare_and_swap
from coordination.layout import Layout, decode, encode
from coordination.mirror import Mirror
from coordination.session import Session
from coordination.view import View
from owner.connections import Compare, Connections
from owner.owner import Owner
from owner.source_watch import OplogLeft
from processor.processor import Processor


class Membership:
    """A context manager. It stops its parts in the order that lets other nodes continue soonest."""

    def __init__(
        self,
        session: Session,
        mirror: Mirror,
        publisher: HealthPublisher,
        *,
        candidate: Callable[[], Owner] | None,
        processor: Processor | None,
        elected: Callable[[], None],
    ) -> None:
        """`candidate`: an owner that is to be elected first. None: the node has not this role."""
        self._session = session
        self._mirror = mirror
        self._decoded: tuple[int, NodeRecord | None] = (0, None)
        """This node's record and its revision: it is read twice a second and seldom changes, so it is cached."""
        self._candidate = candidate
        self._owner: Owner | None = None
        self._led = False
        self._elected = elected
        self._processor = processor
        self._publisher = publisher

    def __enter__(self) -> Self:
        self._session.start()
        if self._processor is not None:
            self._processor.start()
        self._stand()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops the owner first, so that another node can lead while the last windows of this node end, and the lease last: windows need it."""
        if self._owner is not None:
            self._owner.stop()
        if self._processor is not None:
            self._processor.stop()
        self._session.close()

    @property
    def node(self) -> NodeId:
        return self._session.node

    @property
    def alive(self) -> bool:
        return self._session.alive and not (self._processor is not None and self._processor.ended)

    @property
    def leads(self) -> bool:
        return self._owner is not None and self._owner.leads.is_set()

    def record(self, view: View) -> NodeRecord | None:
        """This node's record in etcd, as other nodes read it. None if they do not see it, or cannot read it."""
        found = view.get(self._publisher.key)
        if found is None:
            return None
        seen, record = self._decoded
        if record is None or seen != found.mod_rev:
            try:
                record = decode(NodeRecord, found)
            except RecordUnreadable:
                return None
            self._decoded = found.mod_rev, record
        return record

    @property
    def oplog_left(self) -> Mapping[ChangefeedId, OplogLeft]:
        return self._owner.oplog_left if self._owner is not None and self.leads else {}

    def tick(self) -> None:
        self._publish_health()
        if self._owner is None:
            return
        if self._owner.ended and self._session.alive:
            self._stand()
        if self.leads and not self._led:
            self._elected()
        self._led = self.leads

    def _publish_health(self) -> None:
        view, health = self._mirror.view(), self._publisher.health()
        record, found = self.record(view), view.get(self._publisher.key)
        if found is None or not self._session.alive:
            return
        if record is None and (last := self._decoded[1]) is not None:
            self._publisher.restore(last, found, self._session.lease)
        elif record is not None and health is not None:
            self._publisher.publish(record, found, health, time.monotonic())

    def _stand(self) -> None:
        if self._candidate is not None:
            self._owner = self._candidate()
            self._owner.start()


def owner_candidate(
    session: Session, etcd: Etcd, mirror: Mirror, layout: Layout, compare: Compare | None = None
) -> Owner:
    candidate = Candidate(etcd, layout, lease=session.lease, node=session.node)
    return Owner(candidate, session, mirror, layout, partial(Connections, compare))


_SAME_STATE_EVERY = timedelta(minutes=1)
"""How often another error of a node that is not ready is written: a Spark that starts in vain may say something else each time."""

_log = structlog.get_logger()


class HealthPublisher:
    """For one thread. A write keeps the key, its lease and everything else in the record, such as a drain."""

    def __init__(self, etcd: Etcd, key: str, health: Callable[[], NodeHealth | None] = lambda: None) -> None:
        self._etcd = etcd
        self.key = key
        """Of the node's record."""
        self.health = health
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
            _log.warning("own_record_restored", key=self.key, found_bytes=len(found.value))

    def _written(self, record: NodeRecord, found: KeyValue, lease: int) -> bool:
        put = Put(self.key, encode(record), lease)
        try:
            compare_and_swap(self._etcd, (ModRevIs(self.key, found.mod_rev),), (put,))
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
