from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from devstack.kafka.broker import KafkaBroker
from devstack.kafka.security import ClientSettings, KafkaSecurity
from tests.certificates import Certificates

pytestmark = pytest.mark.soak  # every test that uses it would see its faults, too

Brokers = Callable[..., KafkaBroker]


def produce(client: ClientSettings, topic: str, value: str) -> None:
    producer = Producer({**client, "enable.idempotence": True})
    failed: list[object] = []
    producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(30) == 0
    if failed:
        raise KafkaException(failed[0])


def values(client: ClientSettings, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({**client, "group.id": "test"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.consume(count, timeout=30)
    consumer.close()
    return [message.value() for message in found]


def test_what_is_acknowledged_survives_kill_9_and_a_restart(own_kafka: Brokers) -> None:
    broker = own_kafka()
    broker.create_topic("orders")
    produce(broker.client, "orders", "before")
    broker.kill()
    broker.start()
    produce(broker.client, "orders", "after")
    assert values(broker.client, "orders", 2) == [b"before", b"after"]
    broker.stop()
    assert not broker.running


def test_a_user_may_do_only_what_an_acl_allows_and_speaks_tls(own_kafka: Brokers, tmp_path: Path) -> None:
    security = KafkaSecurity(["reader"], Certificates(tmp_path).tls("broker"))
    broker = own_kafka(security=security)
    broker.create_topic("orders")
    produce(broker.client, "orders", "a row")
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        produce({**broker.client, **security.client_of("reader")}, "orders", "a forbidden row")
