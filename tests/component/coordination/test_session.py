"""The end of a session on a real etcd, which itself decides when a lease has expired."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

from changefeed.records.node import Role
from coordination.etcd.client import EtcdClient
from coordination.layout import Layout
from coordination.session import open_session
from devstack.etcd.server import EtcdServer
from tests.described import described
from tests.until import PATIENCE_SECONDS, until

TTL = timedelta(seconds=3)


describe = described("one", Role.PROCESSOR)


def test_lost_fires_while_another_client_still_sees_the_node(
    connect: Callable[[str], EtcdClient], etcd_endpoint: str, etcd_prefix: str
) -> None:
    own, other = connect(etcd_endpoint), connect(etcd_endpoint)
    session, _ = open_session(own, Layout(etcd_prefix), name="one", describe=describe, ttl=TTL * 4)
    session.start()
    own.close()
    assert session.lost.wait(PATIENCE_SECONDS)
    assert other.get(session.key) is not None
    until(lambda: other.get(session.key) is None)
    session.close()


def test_lost_fires_in_time_when_etcd_hangs(
    connect: Callable[[str], EtcdClient], own_etcd: EtcdServer, freeze: Callable[[EtcdServer], None]
) -> None:
    session, _ = open_session(connect(own_etcd.endpoint), Layout("c"), name="one", describe=describe, ttl=TTL)
    session.start()
    freeze(own_etcd)
    frozen_at = time.monotonic()
    assert session.lost.wait(PATIENCE_SECONDS)
    assert session.lost_at <= frozen_at + (TTL * 0.8).total_seconds(), "counted from a question before the freeze"
    own_etcd.resume()
    session.close()


def test_a_session_outlives_a_restart_of_etcd(connect: Callable[[str], EtcdClient], own_etcd: EtcdServer) -> None:
    client = connect(own_etcd.endpoint)
    session, store = open_session(client, Layout("c"), name="one", describe=describe, ttl=TTL * 4)
    session.start()
    own_etcd.kill()
    own_etcd.start()
    before = session.lost_at
    until(lambda: session.lost_at > before)
    kv = client.get(session.key)
    assert kv is not None
    assert kv.create_rev == store.epoch
    assert not session.lost.is_set()
    session.close()
    assert client.get(session.key) is None
