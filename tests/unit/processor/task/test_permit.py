from __future__ import annotations

from datetime import timedelta

import pytest

from changefeed.errors import CoordinationUnavailable, FencedError
from changefeed.lifecycle import Lifecycle, State
from changefeed.records.status import ChangefeedStatus
from coordination.etcd.config import EtcdConfig
from coordination.etcd.memory import MemoryEtcd
from coordination.etcd.protocol import Delete, KeyValue, Put
from coordination.layout import encode
from processor.task.job_context import Fence
from processor.task.permit import TaskPermit

NODE, STATUS, ATTEMPT = "/nodes/one", "/changefeeds/f/status", "/revoked/one/7"


class Task:
    def __init__(self) -> None:
        self.now = 100.0
        self.server = MemoryEtcd()
        self.epoch = self.server.txn([], [Put(NODE, b"")]).revision
        self.status(run=3)
        fence = Fence(etcd=EtcdConfig(), node_key=NODE, epoch=self.epoch, status_key=STATUS, run=3)
        self.etcd = self.server.connect()
        self.permit = TaskPermit(self.etcd, fence, ATTEMPT, budget=timedelta(seconds=10), monotonic=lambda: self.now)

    def status(self, *, run: int, state: State = State.NORMAL) -> None:
        record = ChangefeedStatus(lifecycle=Lifecycle(state=state), run=run, info_version=1, epoch=1)
        self.server.txn([], [Put(STATUS, encode(record))])


def test_a_task_may_write_for_the_budget_after_its_last_look() -> None:
    task = Task()
    assert task.permit() == 10
    task.now += 1.5
    assert task.permit() == 8.5
    task.now += 1
    assert task.permit() == 10


def test_a_pause_ends_the_permit_at_the_next_look() -> None:
    task = Task()
    task.permit()
    task.status(run=3, state=State.STOPPED)
    task.now += 1
    assert task.permit() > 0
    task.now += 1
    with pytest.raises(FencedError, match="stopped in run 3"):
        task.permit()


def test_a_later_run_ends_the_permit() -> None:
    task = Task()
    task.status(run=4)
    with pytest.raises(FencedError, match="run 4"):
        task.permit()


def test_an_attempt_that_is_revoked_ends_the_permit_at_the_next_look() -> None:
    task = Task()
    task.permit()
    task.server.txn([], [Put(ATTEMPT, b"{}")])
    task.now += 2
    with pytest.raises(FencedError, match="attempt was revoked"):
        task.permit()


def test_the_permit_is_as_short_as_the_older_of_its_two_looks_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Etcd answers what is asked about the node, and then nothing about the run."""
    task = Task()
    task.permit()
    get = task.etcd.get

    def half(key: str) -> KeyValue | None:
        if key == STATUS:
            raise CoordinationUnavailable("cut off")
        return get(key)

    monkeypatch.setattr(task.etcd, "get", half)  # a connection that breaks between two reads
    task.now += 2
    assert task.permit() == 8
    task.now += 8
    with pytest.raises(FencedError, match="expected etcd to confirm run 3 within 10 s"):
        task.permit()


def test_a_removed_changefeed_ends_the_permit() -> None:
    task = Task()
    task.server.txn([], [Delete(STATUS)])
    with pytest.raises(FencedError, match="no changefeed"):
        task.permit()


def test_a_node_that_is_gone_ends_the_permit() -> None:
    task = Task()
    task.permit()
    task.server.txn([], [Delete(NODE)])
    task.now += 2
    with pytest.raises(FencedError, match="no key"):
        task.permit()


def test_a_task_that_cannot_ask_etcd_at_all_says_so_and_one_that_could_is_fenced() -> None:
    task = Task()
    task.etcd.connected = False
    with pytest.raises(CoordinationUnavailable):
        task.permit()
    task.etcd.connected = True
    task.permit()
    task.etcd.connected = False
    task.now += 10
    with pytest.raises(FencedError, match="not confirmed"):
        task.permit()
