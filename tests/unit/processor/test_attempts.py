"""An attempt that Spark has lost counts as ended only after its permit has certainly expired."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from changefeed.errors import PipelineUnavailable
from changefeed.records.node import NodeId
from coordination.etcd.protocol import Put
from coordination.fenced import FencedStore
from coordination.layout import Layout
from processor.job_runs import Attempts
from tests.memory_etcd import MemoryEtcd

LAYOUT, NODE = Layout("test"), NodeId("n1")


class Waits(threading.Event):
    """Records each wait's timeout, and the number of revocations in etcd at that moment."""

    def __init__(self, etcd: MemoryEtcd) -> None:
        super().__init__()
        self._etcd = etcd
        self.seen: list[tuple[float | None, int]] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seen.append((timeout, len(self._etcd.range(f"{LAYOUT.root}revoked/").items)))
        return False


class Node:
    def __init__(self) -> None:
        self.etcd = MemoryEtcd()
        self.lease = self.etcd.grant(timedelta(seconds=10)).id
        epoch = self.etcd.txn([], [Put(LAYOUT.node(NODE), b"{}", self.lease)]).revision
        self.connection = self.etcd.connect()
        self.over = Waits(self.etcd)
        store = FencedStore(self.connection, key=LAYOUT.node(NODE), epoch=epoch)
        self.attempts = Attempts(store, LAYOUT, NODE, self.lease, self.over, margin=timedelta(seconds=10))

    def lose(self) -> str:
        attempt = self.attempts.new()
        with pytest.raises(PipelineUnavailable):
            self.attempts.until_over(attempt, _lost)
        return attempt


def _lost() -> None:
    raise PipelineUnavailable("the executor is lost")


def test_a_lost_attempt_is_over_a_budget_after_its_key_is_in_etcd() -> None:
    node = Node()
    attempt = node.lose()
    assert node.over.seen == [(10.0, 1)]
    assert node.etcd.get(attempt) is not None


def test_its_key_goes_with_the_node_s_lease() -> None:
    node = Node()
    attempt = node.lose()
    node.etcd.revoke(node.lease)
    assert node.etcd.get(attempt) is None


def test_attempts_have_keys_of_their_own() -> None:
    node = Node()
    assert node.lose() != node.lose()


def test_an_attempt_that_answers_is_over_at_once() -> None:
    node = Node()
    assert node.attempts.until_over(node.attempts.new(), lambda: 7) == 7
    assert node.over.seen == []


def test_what_etcd_did_not_confirm_is_written_again_first() -> None:
    node = Node()
    node.connection.lose_requests = 1
    node.lose()
    assert node.over.seen == [(0.5, 0), (10.0, 1)]


def test_after_the_session_nobody_waits() -> None:
    node = Node()
    node.over.set()
    node.lose()
    assert node.over.seen == []
