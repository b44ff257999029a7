from __future__ import annotations

from datetime import timedelta

import pytest

from changefeed.errors import CoordinationUnavailable, FencedError
from changefeed.lifecycle import Lifecycle, State
from changefeed.records.status import ChangefeedStatus
from coordination.etcd.protocol import Delete, EtcdConfig, KeyValue, Put
from coordination.layout import encode
from coordination.task_fence import Fence
from processor.task.permit import TaskPermit
from tests.memory_etcd import MemoryClient, MemoryEtcd

NODE, STATUS, ATTEMPT = "/nodes/one", "/changefeeds/f/status", "/revoked/one/7"


class Task:
    def __init__(self) -> None:
        self.now = 100.0
        self.server = MemoryEtcd()
        self.lease = self.server.grant(timedelta(seconds=10)).id
        self.epoch = self.server.txn([], [Put(NODE, b"", self.lease)]).revision
        self.status(run=3)
        fence = Fence(etcd=EtcdConfig(), node_key=NODE, epoch=self.epoch, status_key=STATUS, run=3)
        self.etcd = SlowClient(self)
        self.permit = TaskPermit(
            self.etcd,
            fence,
            ATTEMPT,
            budget=timedelta(seconds=10),
            look_every=timedelta(seconds=2),
            monotonic=lambda: self.now,
        )

    def status(self, *, run: int, state: State = State.NORMAL) -> None:
        record = ChangefeedStatus(lifecycle=Lifecycle(state=state), run=run, info_version=1, epoch=1)
        self.server.txn([], [Put(STATUS, encode(record))])


class SlowClient(MemoryClient):
    """The answer to the first question of a look takes the time that the test sets."""

    def __init__(self, task: Task) -> None:
        super().__init__(task.server)
        self._task = task
        self.delay = 0.0
        self.looks = 0

    def get(self, key: str) -> KeyValue | None:
        found = super().get(key)
        if key == NODE:
            self.looks += 1
            self._task.now += self.delay
        return found


@pytest.fixture
def task() -> Task:
    return Task()


def test_a_task_may_write_for_the_budget_after_its_last_look(task: Task) -> None:
    assert task.permit() == 10
    task.now += 1.5
    assert task.permit() == 8.5
    task.now += 1
    assert task.permit() == 10


def test_the_budget_counts_from_the_start_of_the_look(task: Task) -> None:
    task.etcd.delay = 3.0
    assert task.permit() == 7


def test_an_answer_slower_than_the_budget_allows_no_write(task: Task) -> None:
    task.etcd.delay = 11.0
    with pytest.raises(FencedError):
        task.permit()


def test_between_looks_etcd_is_not_asked(task: Task) -> None:
    for _ in range(10):
        task.permit()
    assert task.etcd.looks == 1
    task.now += 2
    assert task.permit() == 10
    assert task.etcd.looks == 2


def test_a_task_of_a_node_that_is_gone_stops_at_its_next_look(task: Task) -> None:
    task.permit()
    task.server.revoke(task.lease)
    task.now += 2
    with pytest.raises(FencedError, match="no key"):
        task.permit()


def test_a_task_of_an_earlier_epoch_stops(task: Task) -> None:
    task.server.revoke(task.lease)
    task.server.txn([], [Put(NODE, b"")])
    with pytest.raises(FencedError, match=f"expected epoch {task.epoch}"):
        task.permit()


def test_a_rewritten_record_keeps_the_epoch(task: Task) -> None:
    task.server.txn([], [Put(NODE, b"draining", task.lease)])
    task.permit()


def test_a_pause_ends_the_permit_at_the_next_look(task: Task) -> None:
    task.permit()
    task.status(run=3, state=State.STOPPED)
    task.now += 1
    assert task.permit() > 0
    task.now += 1
    with pytest.raises(FencedError, match="stopped in run 3"):
        task.permit()


def test_a_later_run_ends_the_permit(task: Task) -> None:
    task.status(run=4)
    with pytest.raises(FencedError, match="run 4"):
        task.permit()


def test_a_removed_changefeed_ends_the_permit(task: Task) -> None:
    task.server.txn([], [Delete(STATUS)])
    with pytest.raises(FencedError, match="no changefeed"):
        task.permit()


def test_an_attempt_that_is_revoked_ends_the_permit_at_the_next_look(task: Task) -> None:
    task.permit()
    task.server.txn([], [Put(ATTEMPT, b"{}")])
    task.now += 2
    with pytest.raises(FencedError, match="attempt was revoked"):
        task.permit()


@pytest.mark.parametrize("silent", [STATUS, ATTEMPT])
def test_half_a_look_does_not_renew_the_permit(task: Task, silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Etcd answers what is asked about the node, and then not all about the run."""
    task.permit()
    get = task.etcd.get

    def half(key: str) -> KeyValue | None:
        if key == silent:
            raise CoordinationUnavailable("cut off")
        return get(key)

    monkeypatch.setattr(task.etcd, "get", half)  # a connection that breaks between two reads
    task.now += 2
    assert task.permit() == 8
    task.now += 8
    with pytest.raises(FencedError, match="run 3 not confirmed by etcd within 10 s"):
        task.permit()


def test_a_cut_off_task_writes_until_its_budget_is_over_and_no_longer(task: Task) -> None:
    task.permit()
    task.etcd.connected = False
    task.now += 9
    assert task.permit() == 1
    task.now += 1
    with pytest.raises(FencedError, match="not confirmed"):
        task.permit()


def test_a_task_that_never_reached_etcd_never_writes_and_says_so(task: Task) -> None:
    task.etcd.connected = False
    for _ in range(2):
        with pytest.raises(CoordinationUnavailable):
            task.permit()
        task.now += 3


def test_a_task_that_once_reached_etcd_is_fenced(task: Task) -> None:
    task.permit()
    task.etcd.connected = False
    task.now += 10
    with pytest.raises(FencedError, match="not confirmed"):
        task.permit()
