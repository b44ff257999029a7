from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.errors import ConflictError, CoordinationUnavailable, FencedError, OutcomeUnknown
from coordination.etcd.protocol import Committed, Delete, ModRevIs, Put, batches
from coordination.fenced import FencedStore, compare_and_swap
from tests.memory_etcd import MemoryClient, MemoryEtcd

OWN = "/owner/1"


class Writer:
    def __init__(self) -> None:
        self.server = MemoryEtcd()
        self.client: MemoryClient = self.server.connect()
        self.lease = self.server.grant(timedelta(seconds=10)).id
        result = self.server.txn([], [Put(OWN, b"me", self.lease)])
        assert isinstance(result, Committed)
        self.store = FencedStore(self.client, key=OWN, epoch=result.revision)

    def value(self, key: str = "/a") -> bytes | None:
        kv = self.server.get(key)
        return kv.value if kv else None


@pytest.fixture
def writer() -> Writer:
    return Writer()


def test_a_writer_with_a_valid_epoch_writes(writer: Writer) -> None:
    rev = writer.store.commit([Put("/a", b"1"), Put("/b", b"2")])
    assert (writer.value("/a"), writer.value("/b")) == (b"1", b"2")
    assert writer.store.settle() == rev == writer.server.revision


@pytest.mark.parametrize("reborn", [False, True])
def test_a_writer_whose_key_was_deleted_is_fenced_even_if_the_key_exists_again(writer: Writer, reborn: bool) -> None:
    writer.server.revoke(writer.lease)
    if reborn:
        writer.server.txn([], [Put(OWN, b"me")])
    with pytest.raises(FencedError, match="must stop at once"):
        writer.store.commit([Put("/a", b"1")])
    assert writer.value() is None


def test_a_lost_compare_of_the_callers_is_a_conflict_and_names_the_key(writer: Writer) -> None:
    expected = writer.server.txn([], [Put("/a", b"0")]).revision
    found = writer.server.txn([], [Put("/a", b"1")]).revision
    with pytest.raises(ConflictError, match=f"/a: expected unchanged since revision {expected}, found .* {found}"):
        writer.store.commit([Put("/a", b"2")], [ModRevIs("/a", expected)])
    assert writer.value() == b"1"


def test_fenced_takes_precedence_over_conflict(writer: Writer) -> None:
    writer.server.revoke(writer.lease)
    with pytest.raises(FencedError):
        writer.store.commit([Put("/a", b"2")], [ModRevIs("/a", 99)])


def test_a_rewrite_of_the_own_key_does_not_fence(writer: Writer) -> None:
    writer.server.txn([], [Put(OWN, b"draining", writer.lease)])
    writer.store.commit([Put("/a", b"1")])
    assert writer.value() == b"1"


def test_a_transaction_that_was_not_sent_leaves_nothing_to_settle(writer: Writer) -> None:
    writer.client.connected = False
    with pytest.raises(CoordinationUnavailable) as caught:
        writer.store.commit([Put("/a", b"1")])
    assert not isinstance(caught.value, OutcomeUnknown)
    assert writer.store.settle() == writer.store.epoch


def test_an_unknown_outcome_that_happened_is_visible_once_settled(writer: Writer) -> None:
    writer.client.lose_answers = 1
    with pytest.raises(OutcomeUnknown):
        writer.store.commit([Put("/a", b"1")])
    happened = writer.server.revision
    assert writer.store.settle() > happened
    assert writer.value() == b"1"


def test_a_late_transaction_is_refused_once_settled(writer: Writer) -> None:
    writer.client.lose_requests = 1
    with pytest.raises(OutcomeUnknown):
        writer.store.commit([Put("/a", b"late")])
    writer.store.settle()
    writer.store.commit([Put("/a", b"decided anew")])
    writer.client.deliver_late()
    assert writer.value() == b"decided anew"


def test_settling_keeps_the_key_its_value_and_its_lease(writer: Writer) -> None:
    writer.client.lose_requests = 1
    with pytest.raises(OutcomeUnknown):
        writer.store.commit([Put("/a", b"1")])
    writer.store.settle()
    kv = writer.server.get(OWN)
    assert kv is not None
    assert (kv.value, kv.lease, kv.create_rev) == (b"me", writer.lease, writer.store.epoch)


def test_settling_may_itself_have_an_unknown_outcome_and_is_repeated(writer: Writer) -> None:
    writer.client.lose_requests = 2
    with pytest.raises(OutcomeUnknown):
        writer.store.commit([Put("/a", b"late")])
    with pytest.raises(OutcomeUnknown):
        writer.store.settle()
    settled = writer.store.settle()
    assert settled == writer.server.revision
    writer.client.deliver_late()
    assert writer.server.revision == settled


def test_a_fenced_writer_cannot_settle(writer: Writer) -> None:
    writer.client.lose_answers = 1
    with pytest.raises(OutcomeUnknown):
        writer.store.commit([Put("/a", b"1")])
    writer.server.revoke(writer.lease)
    with pytest.raises(FencedError):
        writer.store.settle()


def test_settling_does_not_call_etcd_when_every_outcome_is_known(writer: Writer) -> None:
    rev = writer.store.commit([Put("/a", b"1")])
    writer.client.connected = False
    assert writer.store.settle() == rev


@settings(max_examples=150)
@given(st.lists(st.sampled_from(["commit", "lose answer", "lose request", "arrive late", "settle"]), max_size=20))
def test_after_settling_the_state_never_changes_by_an_earlier_transaction(script: list[str]) -> None:
    writer = Writer()
    settled: bytes | None = None
    known = True
    for count, step in enumerate(script):
        match step:
            case "lose answer":
                writer.client.lose_answers = 1
            case "lose request":
                writer.client.lose_requests = 1
            case "arrive late":
                writer.client.deliver_late()
            case "settle" | "commit":
                try:
                    if step == "settle":
                        writer.store.settle()
                        settled, known = writer.value(), True
                    else:
                        writer.store.commit([Put("/a", str(count).encode())])
                        settled = str(count).encode() if known else None
                except OutcomeUnknown:
                    known = False
        if known:
            assert writer.value() == settled


def test_many_operations_are_cut_into_transactions_that_etcd_takes(writer: Writer) -> None:
    many = [Put(f"/n/{n:04}", b"x" * 20_000) for n in range(250)]
    cut = list(batches([put] for put in many))
    assert [op for batch in cut for op in batch] == many
    assert max(len(batch) for batch in cut) <= 100
    assert max(sum(len(op.value) for op in batch if isinstance(op, Put)) for batch in cut) <= 1 << 20
    writer.store.commit_in_parts(many)
    assert len(writer.server.range("/n/").items) == 250


def test_many_small_operations_are_cut_at_a_hundred() -> None:
    assert [len(batch) for batch in batches([Delete(f"/{n}")] for n in range(201))] == [100, 100, 1]


def test_no_operations_are_no_transaction(writer: Writer) -> None:
    assert writer.store.commit_in_parts([]) == writer.store.epoch == writer.server.revision


def test_without_an_epoch_the_revisions_read_guard_a_write() -> None:
    client = MemoryEtcd().connect()
    created = compare_and_swap(client, [ModRevIs("/a", 0)], [Put("/a", b"1")])
    with pytest.raises(ConflictError, match="expected absent, found"):
        compare_and_swap(client, [ModRevIs("/a", 0)], [Put("/a", b"2")])
    compare_and_swap(client, [ModRevIs("/a", created)], [Put("/a", b"3")])
    with pytest.raises(ConflictError, match="found it gone"):
        compare_and_swap(client, [ModRevIs("/b", 3)], [])
