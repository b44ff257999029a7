from __future__ import annotations

from datetime import timedelta

import pytest

from changefeed.errors import CoordinationUnavailable, FencedError
from coordination.epoch_guard import EpochGuard
from coordination.etcd.memory import MemoryClient, MemoryEtcd
from coordination.etcd.protocol import KeyValue, Put

NODE = "/nodes/one"


class Executor:
    def __init__(self) -> None:
        self.now = 100.0
        self.server = MemoryEtcd()
        self.lease = self.server.grant(timedelta(seconds=10)).id
        self.epoch = self.server.txn([], [Put(NODE, b"", self.lease)]).revision
        self.client: MemoryClient = SlowClient(self)
        self.guard = EpochGuard(
            self.client,
            key=NODE,
            epoch=self.epoch,
            budget=timedelta(seconds=10),
            look_every=timedelta(seconds=2),
            monotonic=lambda: self.now,
        )


class SlowClient(MemoryClient):
    """An answer takes the time that the test sets."""

    def __init__(self, executor: Executor) -> None:
        super().__init__(executor.server)
        self._executor = executor
        self.delay = 0.0
        self.looks = 0

    def get(self, key: str) -> KeyValue | None:
        self.looks += 1
        found = super().get(key)
        self._executor.now += self.delay
        return found


@pytest.fixture
def executor() -> Executor:
    return Executor()


def test_a_task_of_a_living_node_may_write(executor: Executor) -> None:
    assert executor.guard.demand() == timedelta(seconds=10)


def test_the_budget_counts_from_the_start_of_the_check(executor: Executor) -> None:
    assert isinstance(executor.client, SlowClient)
    executor.client.delay = 3.0
    assert executor.guard.demand() == timedelta(seconds=7)


def test_an_answer_slower_than_the_budget_allows_no_write(executor: Executor) -> None:
    assert isinstance(executor.client, SlowClient)
    executor.client.delay = 11.0
    with pytest.raises(FencedError):
        executor.guard.demand()


def test_between_checks_etcd_is_not_asked(executor: Executor) -> None:
    assert isinstance(executor.client, SlowClient)
    for _ in range(10):
        executor.guard.demand()
    assert executor.client.looks == 1
    executor.now += 2
    assert executor.guard.demand() == timedelta(seconds=10)
    assert executor.client.looks == 2


def test_a_task_of_a_node_that_is_gone_stops_at_its_next_check(executor: Executor) -> None:
    executor.guard.demand()
    executor.server.revoke(executor.lease)
    executor.now += 2
    with pytest.raises(FencedError, match="no key"):
        executor.guard.demand()


def test_a_task_of_an_earlier_epoch_stops(executor: Executor) -> None:
    executor.server.revoke(executor.lease)
    executor.server.txn([], [Put(NODE, b"")])
    with pytest.raises(FencedError, match=f"expected epoch {executor.epoch}"):
        executor.guard.demand()


def test_a_rewritten_record_keeps_the_epoch(executor: Executor) -> None:
    executor.server.txn([], [Put(NODE, b"draining", executor.lease)])
    executor.guard.demand()


def test_a_cut_off_task_writes_until_its_budget_is_over_and_no_longer(executor: Executor) -> None:
    executor.guard.demand()
    executor.client.connected = False
    executor.now += 9
    assert executor.guard.demand() == timedelta(seconds=1)
    executor.now += 1
    with pytest.raises(FencedError, match="not confirmed"):
        executor.guard.demand()


def test_a_task_that_never_reached_etcd_never_writes_and_says_so(executor: Executor) -> None:
    executor.client.connected = False
    for _ in range(2):
        with pytest.raises(CoordinationUnavailable):
            executor.guard.demand()
        executor.now += 3
