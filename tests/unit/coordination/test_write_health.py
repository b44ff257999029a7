from __future__ import annotations

from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from changefeed.errors import CoordinationFull, CoordinationUnavailable
from coordination.etcd.protocol import Delete, Put
from coordination.write_health import PATIENCE, PROBE_EVERY, WatchedEtcd, WriteRecord
from credentials.logging import Interruption
from tests.memory_etcd import MemoryEtcd

FULL = CoordinationFull("full")
LONG = PATIENCE.total_seconds()
NOTICED = PROBE_EVERY.total_seconds() + LONG


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Node:
    """The requests of one process to etcd, second by second."""

    def __init__(self) -> None:
        self.server = MemoryEtcd()
        self.client = self.server.connect()
        self.clock = Clock()
        self.etcd = WatchedEtcd(self.client, "/probe", self.clock)

    @property
    def trouble(self) -> str:
        return self.etcd.trouble.code if self.etcd.trouble else ""

    def rest(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.clock.now += 1
            self.etcd.look()


def test_a_failure_is_trouble_once_it_lasts() -> None:
    record = WriteRecord().taken(9.0).failed(10.0, FULL).failed(11.0, FULL)
    assert record.trouble(10.0 + LONG - 0.1) is None
    assert record.trouble(10.0 + LONG) is FULL


def test_an_accepted_write_ends_the_trouble() -> None:
    assert WriteRecord().failed(10.0, FULL).taken(12.0).trouble(1000.0) is None


def test_a_failed_write_does_not_count_after_a_later_accepted_one() -> None:
    assert WriteRecord().taken(12.0).failed(10.0, FULL).trouble(1000.0) is None
    assert WriteRecord().failed(10.0, FULL).taken(12.0).failed(11.0, FULL).trouble(1000.0) is None


def test_a_node_at_rest_finds_out_that_etcd_is_full_and_that_it_has_room_again() -> None:
    node = Node()
    node.rest(5)
    assert node.trouble == ""
    node.server.fill_up()
    node.rest(NOTICED)
    assert node.trouble == "coordination_full"
    node.server.make_room()
    node.rest(1)
    assert node.trouble == ""


def test_the_probe_changes_nothing_in_etcd() -> None:
    node = Node()
    before = node.server.revision
    node.rest(10)
    assert node.server.revision == before
    assert node.server.get("/probe") is None


def test_an_accepted_delete_does_not_end_the_trouble() -> None:
    node = Node()
    node.server.fill_up()
    node.rest(NOTICED)
    node.server.make_room()
    node.etcd.txn([], [Delete("/a")])
    assert node.trouble == "coordination_full"


def test_a_write_of_the_node_itself_ends_the_trouble_at_once() -> None:
    node = Node()
    node.server.fill_up()
    node.rest(NOTICED)
    node.server.make_room()
    node.etcd.txn([], [Put("/a", b"")])
    assert node.trouble == ""


def test_an_etcd_that_cannot_be_reached_takes_no_writes() -> None:
    node = Node()
    node.client.connected = False
    node.rest(NOTICED)
    assert node.trouble == "coordination_unavailable"


def test_a_lease_that_is_not_granted_is_a_write_that_failed() -> None:
    node = Node()
    node.server.fill_up()
    with pytest.raises(CoordinationFull):
        node.etcd.grant(timedelta(seconds=10))
    node.clock.now += LONG
    node.etcd.look()
    assert node.trouble == "coordination_full"


def test_a_trouble_is_logged_when_it_begins_and_when_it_ends_and_not_in_between() -> None:
    node = Node()
    with capture_logs() as logs:
        node.server.fill_up()
        for _ in range(200):
            node.clock.now += 0.1
            with pytest.raises(CoordinationUnavailable):
                node.etcd.txn([], [Put("/a", b"")])
            node.etcd.look()
        node.server.make_room()
        node.rest(5)
    assert [(log["event"], log["log_level"]) for log in logs] == [
        ("etcd_takes_no_writes", "error"),
        ("etcd_takes_writes_again", "info"),
    ]


def test_a_failure_that_does_not_last_is_not_logged() -> None:
    node = Node()
    node.rest(1)
    with capture_logs() as logs:
        node.server.fill_up()
        node.rest(PROBE_EVERY.total_seconds())
        node.server.make_room()
        node.rest(NOTICED)
    assert logs == []


def test_an_interruption_is_logged_when_it_begins_and_when_it_is_over() -> None:
    told: list[tuple[str, object]] = []

    class Log:
        def warning(self, event: str, **facts: object) -> None:
            told.append((event, facts["error"]))

        def info(self, event: str, **facts: object) -> None:
            told.append((event, facts["seconds"]))

    clock = Clock()
    interruption = Interruption(Log(), "waits", "goes_on", clock)
    interruption.over()
    for _ in range(3):
        interruption.occurred(FULL)
        clock.now += 1
    interruption.over()
    interruption.over()
    assert told == [("waits", "full"), ("goes_on", 3.0)]


def test_an_interruption_that_lasts_is_logged_each_minute() -> None:
    told: list[object] = []

    class Log:
        def warning(self, event: str, **facts: object) -> None:
            told.append(facts.get("seconds", event))

        def info(self, event: str, **facts: object) -> None:
            told.append(event)

    clock = Clock()
    interruption = Interruption(Log(), "waits", "goes_on", clock)
    for _ in range(150):
        interruption.occurred(FULL)
        clock.now += 1
    interruption.over()
    assert told == ["waits", 60, 120, "goes_on"]
