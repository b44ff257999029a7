from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.errors import FencedError
from changefeed.records.node import NodeId, NodeRecord, Role
from coordination.etcd.protocol import Put
from coordination.fenced import FencedStore
from coordination.layout import Layout, decode
from coordination.session import Session, SessionClock, open_session
from tests.memory_etcd import MemoryClient, MemoryEtcd
from tests.until import PATIENCE_SECONDS

LAYOUT = Layout("c")
TTL = timedelta(seconds=10)


def describe(node: NodeId) -> NodeRecord:
    return NodeRecord(
        id=node,
        name="one",
        admin_address="h:1",
        roles=frozenset({Role.OWNER}),
        version="1",
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


class World:
    """One clock for the node and the server, as if messages took no time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.server = MemoryEtcd()
        self.client = self.server.connect()
        self.pass_time(0)
        self.session, self.store = self.open()

    def open(self) -> tuple[Session, FencedStore]:
        return open_session(self.client, LAYOUT, name="one", describe=describe, ttl=TTL, monotonic=lambda: self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.server.advance(timedelta(seconds=self.now))

    def live_for(self, seconds: int) -> None:
        for _ in range(seconds):
            self.pass_time(1)
            self.session.tick()


@pytest.fixture
def world() -> World:
    return World()


def test_a_session_is_a_node_key_that_names_its_lease(world: World) -> None:
    kv = world.server.get(LAYOUT.node(world.session.node))
    assert kv is not None
    assert (kv.lease, kv.create_rev) == (world.session.lease, world.store.epoch)
    assert decode(NodeRecord, kv) == describe(NodeId(f"one-{world.session.lease:x}"))


def test_a_session_that_is_kept_alive_lives_on(world: World) -> None:
    world.live_for(100)
    assert world.session.alive
    assert world.server.get(world.session.key) is not None


def test_lost_fires_while_the_server_still_has_the_lease(world: World) -> None:
    world.client.connected = False
    world.live_for(8)
    assert world.session.lost.is_set()
    assert world.server.time_to_live(world.session.lease) == timedelta(seconds=2)


def test_a_session_survives_an_etcd_that_is_away_for_less_than_its_margin_allows(world: World) -> None:
    world.client.connected = False
    world.live_for(6)
    world.client.connected = True
    world.live_for(20)
    assert world.session.alive


def test_a_session_once_lost_stays_lost(world: World) -> None:
    world.pass_time(9)
    assert not world.session.alive
    world.session.tick()
    assert not world.session.alive
    assert world.server.time_to_live(world.session.lease) == timedelta(seconds=1)


def test_a_stopped_process_knows_at_once_that_its_session_is_over(world: World) -> None:
    world.pass_time(60)
    assert not world.session.alive
    with pytest.raises(FencedError):
        world.store.commit([Put("/x", b"")])


def test_a_late_keep_alive_answer_does_not_revive_a_lost_session(world: World) -> None:
    class Slow(MemoryClient):
        def keep_alive(self, lease: int, timeout: timedelta) -> timedelta | None:
            ttl = super().keep_alive(lease, timeout)
            world.pass_time(9)
            return ttl

    slow = Slow(world.server)
    session, _ = open_session(slow, LAYOUT, name="two", describe=describe, ttl=TTL, monotonic=lambda: world.now)
    world.pass_time(3)
    session.tick()
    assert session.lost.is_set()


def test_the_lease_counts_from_when_the_keep_alive_was_sent(world: World) -> None:
    class Slow(MemoryClient):
        def keep_alive(self, lease: int, timeout: timedelta) -> timedelta | None:
            ttl = super().keep_alive(lease, timeout)
            world.pass_time(2)
            return ttl

    slow = Slow(world.server)
    session, _ = open_session(slow, LAYOUT, name="two", describe=describe, ttl=TTL, monotonic=lambda: world.now)
    world.pass_time(3)
    sent_at = world.now
    session.tick()
    assert session.lost_at == sent_at + 8


def test_a_lease_revoked_by_others_ends_the_session_at_the_next_keep_alive(world: World) -> None:
    world.server.revoke(world.session.lease)
    world.live_for(3)
    assert world.session.lost.is_set()


def test_a_closed_session_has_left_nothing_in_etcd(world: World) -> None:
    world.session.close()
    world.session.close()
    assert world.session.lost.is_set()
    assert world.server.range(LAYOUT.root).items == ()


def test_a_session_can_be_closed_while_etcd_is_away(world: World) -> None:
    world.client.connected = False
    world.session.close()
    assert world.session.lost.is_set()


def test_a_new_session_is_a_new_node(world: World) -> None:
    session, store = world.open()
    assert session.node != world.session.node
    assert store.epoch > world.store.epoch


def test_the_session_thread_ends_with_the_session(world: World) -> None:
    world.session.start()
    world.now += 60
    assert world.session.lost.wait(PATIENCE_SECONDS)
    world.session.close()


@given(
    st.floats(2, 60).map(lambda seconds: timedelta(seconds=seconds)),
    st.lists(st.tuples(st.floats(0, 30), st.floats(0, 5), st.booleans()), max_size=20),
)
def test_the_clock_never_outlives_the_lease(ttl: timedelta, calls: list[tuple[float, float, bool]]) -> None:
    """For any delays of request and answer: the server counts from when it handled the request."""
    now, expires_at = 0.0, ttl.total_seconds()
    clock = SessionClock(ttl=ttl, renewed_at=0.0)
    for pause, delay, answered in calls:
        now += pause
        if not clock.alive(now):
            break
        sent_at, handled_at = now, now + delay / 2
        if handled_at < expires_at:
            expires_at = handled_at + ttl.total_seconds()
            now += delay
            if answered and clock.alive(now):
                clock = clock.renewed(sent_at, ttl)
        assert clock.lost_at < expires_at
        assert clock.timeout(now) <= ttl
