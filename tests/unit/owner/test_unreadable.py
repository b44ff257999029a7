"""A changefeed that cannot be read is removed only when nothing of it can write any more."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from changefeed.config.configuration import Configuration
from changefeed.errors import RecordUnreadable
from changefeed.records.node import NodeId
from changefeed.records.requests import ChangefeedId, ChangefeedInfo, DesiredState
from coordination.etcd.protocol import Put
from coordination.fenced import FencedStore
from coordination.layout import Layout, encode
from coordination.mirror import Mirror
from coordination.view import View
from owner.owner import UnreadableChangefeeds
from tests.memory_etcd import MemoryEtcd

LAYOUT, FEED = Layout("c"), ChangefeedId("tz")
INFO = ChangefeedInfo(
    configuration=Configuration.parse({"id": "tz", "source": "mongodb://a", "sink": "mongodb://b"}),
    created_at=datetime(2026, 11, 21, tzinfo=UTC),
)


class Cluster:
    def __init__(self, margin: timedelta) -> None:
        self.server = MemoryEtcd()
        epoch = self.server.txn([], [Put("owner", b"o")]).revision
        self._mirror = Mirror(self.server.connect(), LAYOUT.root)
        self.store = FencedStore(self.server.connect(), key="owner", epoch=epoch)
        self.unreadable = UnreadableChangefeeds(self.store, LAYOUT, margin)
        feed = LAYOUT.changefeed(FEED)
        keys = (f"{feed}{name}" for name in ("info", "status", "barrier", "ddl/1", f"assignment/{NodeId('n')}/000"))
        self.server.txn([], [Put(key, b"?") for key in keys])

    def view(self) -> View:
        while self._mirror.poll(timedelta(0)):
            pass
        return self._mirror.view()

    def asked(self) -> None:
        self.server.txn([], [Put(LAYOUT.removed(FEED), b"?")])

    @property
    def keys(self) -> set[str]:
        prefix = LAYOUT.changefeed(FEED)
        return {kv.key.removeprefix(prefix) for kv in self.server.connect().range(prefix).items}


def test_its_run_ends_first_and_its_name_is_free_only_after_the_margin() -> None:
    waits, at_once = Cluster(timedelta(hours=1)), Cluster(timedelta(0))
    for cluster in (waits, at_once):
        cluster.asked()
        cluster.unreadable.remove(FEED, cluster.view())
        assert cluster.keys == {"info", "ddl/1", "assignment/n/000"}, "no task finds its run confirmed"
        cluster.unreadable.remove(FEED, cluster.view())
    assert "info" in waits.keys, "a task may still write"
    assert at_once.keys == set()


def test_only_what_a_user_has_asked_for_is_removed() -> None:
    cluster = Cluster(timedelta(0))
    assert not cluster.unreadable.asked_to_remove(FEED, None, cluster.view())
    cluster.asked()
    assert cluster.unreadable.asked_to_remove(FEED, None, cluster.view())


def test_what_can_be_read_after_the_first_step_is_removed_all_the_same() -> None:
    """Its status was the record that could not be read: without it, the changefeed would begin anew."""
    cluster = Cluster(timedelta(0))
    cluster.server.txn([], [Put(LAYOUT.info(FEED), encode(INFO))])
    removed = replace(INFO, desired=DesiredState.REMOVED)
    cluster.asked()
    assert cluster.unreadable.asked_to_remove(FEED, INFO, cluster.view())
    assert not cluster.unreadable.asked_to_remove(FEED, removed, cluster.view()), "an ordinary removal"
    cluster.unreadable.remove(FEED, cluster.view())
    assert cluster.unreadable.asked_to_remove(FEED, removed, cluster.view()), "its nodes will not report its end"


def test_its_large_definitions_are_removed_with_it() -> None:
    cluster = Cluster(timedelta(0))
    kept = f"{LAYOUT.large(ChangefeedId('other'))}digest-1/00"
    cluster.server.txn([], [Put(f"{LAYOUT.large(FEED)}digest-1/00", b"x"), Put(kept, b"x")])
    cluster.asked()
    for _ in range(2):
        cluster.unreadable.remove(FEED, cluster.view())
    assert cluster.server.keys(LAYOUT.unmirrored) == [kept]


@pytest.mark.parametrize("times", [1, 3])
def test_an_error_is_logged_once(times: int) -> None:
    cluster = Cluster(timedelta(0))
    with capture_logs() as logs:
        for _ in range(times):
            cluster.unreadable.met(FEED, RecordUnreadable("info: not a ChangefeedInfo"))
    assert [log["event"] for log in logs] == ["changefeed_unreadable"]
