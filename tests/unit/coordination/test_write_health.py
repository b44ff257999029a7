from __future__ import annotations

from structlog.testing import capture_logs

from changefeed.errors import CoordinationFull
from coordination.write_health import PATIENCE, PROBE_EVERY, EtcdWrites
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
    """What one process knows of etcd, second by second."""

    def __init__(self) -> None:
        self.server = MemoryEtcd()
        self.client = self.server.connect()
        self.clock = Clock()
        self.writes = EtcdWrites(self.client, "/probe", self.clock)

    @property
    def trouble(self) -> str:
        return self.writes.trouble.code if self.writes.trouble else ""

    def rest(self, seconds: float) -> None:
        for _ in range(round(seconds)):
            self.clock.now += 1
            self.writes.look()


def test_a_node_at_rest_finds_out_that_etcd_is_full_and_that_it_has_room_again() -> None:
    node = Node()
    node.rest(5)
    assert node.trouble == ""
    node.server.fill_up()
    node.rest(LONG - 1)
    assert node.trouble == ""
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


def test_an_etcd_that_cannot_be_reached_takes_no_writes() -> None:
    node = Node()
    node.client.connected = False
    node.rest(NOTICED)
    assert node.trouble == "coordination_unavailable"


def test_a_trouble_is_logged_when_it_begins_and_when_it_ends_and_not_in_between() -> None:
    node = Node()
    with capture_logs() as logs:
        node.server.fill_up()
        node.rest(20)
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
        for _ in range(2):
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
