"""A node's health is in etcd, with few writes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from changefeed.errors import PipelineUnavailable
from changefeed.lifecycle import ErrorReport
from changefeed.records.node import NodeHealth, NodeId, NodeRecord, Role
from coordination.etcd.protocol import KeyValue, Put
from coordination.layout import decode, encode
from node.membership import HealthPublisher
from tests.memory_etcd import MemoryEtcd

KEY = "/node"
READY = NodeHealth(ready=True)


def broken(message: str) -> NodeHealth:
    return NodeHealth(ready=False, error=ErrorReport.of(PipelineUnavailable(message), datetime.now(UTC)))


class Published:
    def __init__(self) -> None:
        self.server = MemoryEtcd()
        self.etcd = self.server.connect()
        self.lease = self.etcd.grant(timedelta(seconds=60)).id
        self.now = 1000.0
        self.publisher = HealthPublisher(self.etcd, KEY)
        roles = frozenset({Role.PROCESSOR})
        started_at = datetime(2026, 11, 21, tzinfo=UTC)
        record = NodeRecord(
            id=NodeId("n1"), name="n1", admin_address="", roles=roles, version="1", started_at=started_at
        )
        self.write(record)

    def write(self, record: NodeRecord) -> None:
        self.etcd.txn((), (Put(KEY, encode(record), self.lease),))

    @property
    def found(self) -> KeyValue:
        found = self.etcd.get(KEY)
        assert found is not None
        return found

    @property
    def record(self) -> NodeRecord:
        return decode(NodeRecord, self.found)

    def publish(self, health: NodeHealth) -> bool:
        before = self.server.revision
        self.publisher.publish(self.record, self.found, health, self.now)
        return self.server.revision > before


@pytest.fixture
def published() -> Published:
    return Published()


def test_a_health_that_does_not_change_is_written_once(published: Published) -> None:
    assert published.publish(READY)
    assert not any(published.publish(READY) for _ in range(1000))
    assert (published.record.health, published.found.lease) == (READY, published.lease)


def test_another_state_is_written_at_once_and_another_error_of_it_once_a_minute(published: Published) -> None:
    assert published.publish(READY)
    assert published.publish(broken("first"))
    assert not published.publish(broken("second"))
    published.now += 60
    assert published.publish(broken("second"))
    assert not published.publish(broken("second")), "only its time differs"
    assert published.publish(READY)


def test_a_node_whose_lease_is_over_finds_that_out_elsewhere(published: Published) -> None:
    found, record = published.found, published.record
    published.etcd.revoke(published.lease)
    published.publisher.publish(record, found, READY, published.now)
    assert published.etcd.get(KEY) is None


def test_what_others_write_into_the_record_stays(published: Published) -> None:
    found, record = published.found, published.record
    published.write(replace(record, draining=True))
    published.publisher.publish(record, found, READY, published.now)
    assert published.record.health is None, "its view was old; it is written with the next one"
    assert published.publish(READY)
    assert published.record.draining


def test_a_record_that_nobody_can_read_is_restored_with_its_lease(published: Published) -> None:
    last = published.record
    published.etcd.txn((), (Put(KEY, b"damaged"),))
    published.publisher.restore(last, published.found, published.lease)
    assert published.record == last
    assert published.found.lease == published.lease
