from __future__ import annotations

from datetime import timedelta

import pytest

from changefeed.errors import CoordinationUnavailable, FencedError, OutcomeUnknown
from changefeed.records.node import NodeId
from changefeed.records.requests import ChangefeedId
from coordination.election import Candidate, ElectedOwner, owner_in
from coordination.etcd.protocol import Put
from coordination.layout import Layout
from coordination.mirror import Mirror
from tests.memory_etcd import MemoryClient, MemoryEtcd

LAYOUT = Layout("c")
AT_ONCE = timedelta(0)


def candidate(client: MemoryClient, name: str) -> tuple[Candidate, int]:
    lease = client.grant(timedelta(seconds=10)).id
    return Candidate(client, LAYOUT, lease=lease, node=NodeId(name)), lease


@pytest.fixture
def client() -> MemoryClient:
    return MemoryEtcd().connect()


def test_the_first_candidate_leads_and_the_others_wait(client: MemoryClient) -> None:
    one, two = candidate(client, "one")[0], candidate(client, "two")[0]
    assert one.campaign(AT_ONCE) is not None
    assert two.campaign(AT_ONCE) is None
    assert one.campaign(AT_ONCE) is not None


def test_the_oldest_key_leads_whatever_its_name(client: MemoryClient) -> None:
    low, high = candidate(client, "low")[0], candidate(client, "high")[0]
    assert low.key < high.key
    assert high.campaign(AT_ONCE) is not None
    assert low.campaign(AT_ONCE) is None


def test_the_next_in_line_leads_when_the_owner_resigns(client: MemoryClient) -> None:
    candidates = [candidate(client, name)[0] for name in ("one", "two", "three")]
    stores = [each.campaign(AT_ONCE) for each in candidates]
    assert [store is not None for store in stores] == [True, False, False]
    candidates[0].resign()
    candidates[0].resign()
    assert candidates[2].campaign(AT_ONCE) is None
    leading = candidates[1].campaign(AT_ONCE)
    assert leading is not None
    assert stores[0] is not None
    assert leading.epoch > stores[0].epoch


def test_a_new_owner_decides_on_no_state_older_than_its_predecessors_last_write(client: MemoryClient) -> None:
    """Its key is older than that write, so the revision of its key proves nothing. Changes outside the prefix do not move a mirror."""
    one, two = candidate(client, "one")[0], candidate(client, "two")[0]
    before = one.campaign(AT_ONCE)
    assert two.campaign(AT_ONCE) is None
    mirror = Mirror(client, LAYOUT.root)
    while mirror.poll(AT_ONCE):
        pass
    assert before is not None
    last_write = before.commit([Put(LAYOUT.status(ChangefeedId("f")), b"the last")])
    one.resign()
    client.txn((), (Put("/others/key", b""),))
    leading = two.campaign(AT_ONCE)
    assert leading is not None
    assert leading.settle() > last_write
    with pytest.raises(CoordinationUnavailable):
        mirror.at_least(leading.settle(), AT_ONCE)
    while mirror.poll(AT_ONCE):
        pass
    found = mirror.at_least(leading.settle(), AT_ONCE).get(LAYOUT.status(ChangefeedId("f")))
    assert found is not None
    assert found.value == b"the last"


def test_an_owner_whose_key_was_written_last_still_leads(client: MemoryClient) -> None:
    """It rewrites its key to settle what was not answered. The candidates behind it are of later epochs all the same."""
    one, two, three = (candidate(client, name)[0] for name in ("one", "two", "three"))
    leading = one.campaign(AT_ONCE)
    assert leading is not None
    for waiting in (two, three):
        assert waiting.campaign(AT_ONCE) is None
    leading.begin_turn()
    assert two.campaign(AT_ONCE) is None
    assert one.campaign(AT_ONCE) is not None
    one.resign()
    assert three.campaign(AT_ONCE) is None
    assert two.campaign(AT_ONCE) is not None


def test_an_owner_that_resigned_is_fenced(client: MemoryClient) -> None:
    one = candidate(client, "one")[0]
    store = one.campaign(AT_ONCE)
    assert store is not None
    one.resign()
    with pytest.raises(FencedError):
        store.commit([Put("/x", b"")])


def test_an_owner_whose_lease_expired_is_fenced_and_another_leads(client: MemoryClient) -> None:
    one, _ = candidate(client, "one")
    old = one.campaign(AT_ONCE)
    client.server.advance(timedelta(seconds=5))
    two, _ = candidate(client, "two")
    assert two.campaign(AT_ONCE) is None
    client.server.advance(timedelta(seconds=11))
    assert old is not None
    with pytest.raises(FencedError):
        old.commit([Put("/x", b"")])
    assert two.campaign(AT_ONCE) is not None


def test_a_candidate_whose_session_is_over_is_fenced(client: MemoryClient) -> None:
    one, lease = candidate(client, "one")
    client.revoke(lease)
    with pytest.raises(FencedError):
        one.campaign(AT_ONCE)


def test_a_candidate_campaigns_again_after_an_unknown_outcome(client: MemoryClient) -> None:
    one = candidate(client, "one")[0]
    client.lose_answers = 1
    with pytest.raises(OutcomeUnknown):
        one.campaign(AT_ONCE)
    assert one.campaign(AT_ONCE) is not None


def test_a_broken_connection_keeps_the_candidates_key(client: MemoryClient) -> None:
    one, two = candidate(client, "one")[0], candidate(client, "two")[0]
    one.campaign(AT_ONCE)
    two.campaign(AT_ONCE)
    client.connected = False
    with pytest.raises(CoordinationUnavailable):
        two.campaign(AT_ONCE)
    client.connected = True
    one.resign()
    assert two.campaign(AT_ONCE) is not None


def test_every_node_sees_the_owner(client: MemoryClient) -> None:
    mirror = Mirror(client, LAYOUT.root)
    mirror.poll(AT_ONCE)
    assert owner_in(mirror.view(), LAYOUT) is None
    one, two = candidate(client, "one")[0], candidate(client, "two")[0]
    store = one.campaign(AT_ONCE)
    two.campaign(AT_ONCE)
    while mirror.poll(AT_ONCE):
        pass
    assert store is not None
    assert owner_in(mirror.view(), LAYOUT) == ElectedOwner(NodeId("one"), store.epoch)


def test_an_owner_whose_record_cannot_be_read_is_known_by_its_lease(client: MemoryClient) -> None:
    lease = client.grant(timedelta(seconds=10)).id
    one = Candidate(client, LAYOUT, lease=lease, node=NodeId(f"one-{lease:x}"))
    client.txn((), (Put(LAYOUT.node(NodeId("two-1")), b"{}"), Put(LAYOUT.node(NodeId(f"one-{lease:x}")), b"{}")))
    store = one.campaign(AT_ONCE)
    client.txn((), (Put(one.key, b"damaged", lease),))
    mirror = Mirror(client, LAYOUT.root)
    while mirror.poll(AT_ONCE):
        pass
    assert store is not None
    assert owner_in(mirror.view(), LAYOUT) == ElectedOwner(NodeId(f"one-{lease:x}"), store.epoch)
