"""Of two users' changes at the same time none is lost, and none reaches a changefeed that its user did not mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import structlog

from admin.access import Access, Caller
from admin.desired.desired_store import DesiredStore
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.errors import ConfigurationError, ConflictError, NotFoundError, WrongState
from changefeed.records.node import NodeId
from changefeed.records.requests import ChangefeedId, ChangefeedInfo, DesiredState, RepairRequest, TableVerb
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId
from coordination.election import ElectedOwner
from coordination.etcd.protocol import Delete, KeyValue, Put
from coordination.history import MOST_ENTRIES
from coordination.layout import Layout, decode, encode
from tests.memory_etcd import MemoryClient, MemoryEtcd

FEED, LAYOUT, TABLE = ChangefeedId("f"), Layout("test"), TableId("a" * 32)
INFO = ChangefeedInfo(
    configuration=Configuration.parse({"id": "f", "source": "mongodb://a", "sink": "mongodb://b"}),
    created_at=datetime(2026, 11, 21, tzinfo=UTC),
)


class Client(MemoryClient):
    """Something happens after its next read."""

    def __init__(self, server: MemoryEtcd) -> None:
        super().__init__(server)
        self.then: Callable[[], object] | None = None

    def get(self, key: str) -> KeyValue | None:
        found = super().get(key)
        then, self.then = self.then, None
        if then is not None:
            then()
        return found


class Cluster:
    def __init__(self) -> None:
        self.server = MemoryEtcd()
        self.client = Client(self.server)
        self.store = DesiredStore(self.client, LAYOUT)
        self.other = DesiredStore(self.server.connect(), LAYOUT)

    @property
    def info(self) -> ChangefeedInfo:
        return self.other.read(FEED)[0]

    def created_anew(self) -> None:
        self.server.txn([], [Delete(LAYOUT.info(FEED))])
        self.server.txn([], [Put(LAYOUT.info(FEED), encode(INFO))])


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.other.create(INFO)
    return cluster


def later(info: ChangefeedInfo, _: ChangefeedStatus | None) -> ChangefeedInfo:
    return replace(info, version=info.version + 1)


def paused(info: ChangefeedInfo, _: ChangefeedStatus | None) -> ChangefeedInfo:
    return replace(info, version=info.version + 1, desired=DesiredState.PAUSED)


def test_a_change_is_decided_again_on_what_another_user_has_changed_meanwhile(cluster: Cluster) -> None:
    cluster.client.then = lambda: cluster.other.change(FEED, paused, "update")
    cluster.store.change(FEED, later, "update")
    assert (cluster.info.version, cluster.info.desired) == (3, DesiredState.PAUSED)


def test_a_change_of_what_was_created_anew_meanwhile_is_decided_on_that(cluster: Cluster) -> None:
    cluster.other.change(FEED, paused, "update")
    cluster.client.then = cluster.created_anew
    cluster.store.change(FEED, later, "update")
    assert (cluster.info.version, cluster.info.desired) == (2, DesiredState.RUNNING)


def test_of_two_creations_one_is_refused(cluster: Cluster) -> None:
    with pytest.raises(ConflictError, match="exists already"):
        cluster.store.create(INFO)
    cluster.server.txn([], [Delete(LAYOUT.info(FEED))])
    cluster.client.then = lambda: cluster.other.create(INFO)
    with pytest.raises(ConflictError):
        cluster.store.create(INFO)


def test_what_a_user_removed_is_created_again_by_a_user_alone(cluster: Cluster) -> None:
    def removed(info: ChangefeedInfo, _: ChangefeedStatus | None) -> ChangefeedInfo:
        return replace(info, version=info.version + 1, desired=DesiredState.REMOVED)

    cluster.store.change(FEED, removed, "update")
    assert cluster.store.removed_at(FEED) is not None
    cluster.server.txn([], [Delete(LAYOUT.info(FEED))])
    with pytest.raises(WrongState, match="so it is not created again by itself"):
        cluster.store.create(INFO, unless_removed=True)
    cluster.store.create(INFO)
    assert cluster.store.removed_at(FEED) is None


def test_a_request_to_resign_is_for_one_owner_and_ends_with_it(cluster: Cluster) -> None:
    """Else the next owner, or one of the next weeks, would be asked."""
    lease = cluster.server.grant(timedelta(seconds=10)).id
    epoch = cluster.server.txn([], [Put(LAYOUT.owner(lease), b"{}", lease)]).revision
    with pytest.raises(ConflictError, match="no longer the owner"):
        cluster.store.resign(ElectedOwner(NodeId("n1"), epoch - 1))
    cluster.store.resign(ElectedOwner(NodeId("n1"), epoch))
    assert cluster.server.get(LAYOUT.resign) is not None
    cluster.server.revoke(lease)
    assert cluster.server.get(LAYOUT.resign) is None


@pytest.mark.parametrize("gone", [False, True])
def test_a_request_is_about_the_changefeed_that_there_was(gone: bool, cluster: Cluster) -> None:
    """One of the same name that was created meanwhile has other tables, and other wishes."""
    ask = cluster.store.ask
    assert ask(FEED, TABLE, TableVerb.STOP) == cluster.server.revision
    cluster.server.txn([], [Delete(LAYOUT.request(FEED, TABLE))])
    if gone:
        cluster.server.txn([], [Delete(LAYOUT.info(FEED))])
    else:
        cluster.client.then = cluster.created_anew
    with pytest.raises(NotFoundError if gone else ConflictError):
        ask(FEED, TABLE, TableVerb.STOP)
    with pytest.raises(NotFoundError if gone else ConflictError):
        _moved_after(cluster, gone=gone)
    assert cluster.server.get(LAYOUT.request(FEED, TABLE)) is None
    assert cluster.server.get(LAYOUT.move(FEED, TABLE)) is None


def _moved_after(cluster: Cluster, *, gone: bool) -> None:
    cluster.client.then = None if gone else cluster.created_anew
    cluster.store.move(FEED, TABLE, NodeId("n1"))


def test_what_nobody_could_read_afterwards_is_not_written(cluster: Cluster) -> None:
    """The fields are named, as for any mistake in a configuration; the record stays as it was."""
    cluster.created_anew()
    before = cluster.info

    def ended_before_its_start(info: ChangefeedInfo, status: ChangefeedStatus | None) -> ChangefeedInfo:
        times = {"start": ClusterTime(200, 0), "target": ClusterTime(100, 0)}
        return replace(info, configuration=info.configuration.model_copy(update=times), version=2)

    with pytest.raises(ConfigurationError) as refused:
        cluster.store.change(FEED, ended_before_its_start, "update")
    assert refused.value.problems == (
        "configuration.target: found 100.0, which is not after start 200.0; write a later time",
    )
    assert cluster.info == before


def test_a_repair_that_nobody_can_read_is_replaced_by_a_new_one(cluster: Cluster) -> None:
    request, key = (
        RepairRequest(id="1", keys=(), asked_at=datetime(2026, 11, 21, tzinfo=UTC)),
        LAYOUT.repair(FEED, TABLE),
    )
    cluster.server.txn([], [Put(key, b"damaged")])
    assert cluster.store.repair(FEED, TABLE, request) is not None
    assert cluster.store.repair(FEED, TABLE, replace(request, id="2")) is None
    found = cluster.client.get(key)
    assert found is not None
    assert decode(RepairRequest, found) == request


MARIA = Caller(name="maria", access=Access.OPERATOR, address="10.0.0.7")


def _told(cluster: Cluster) -> list[tuple[str, str, str, str, str]]:
    return [(entry.by, entry.action, entry.subject, entry.before, entry.after) for entry in cluster.store.history(FEED)]


def test_each_change_says_who_made_it_in_the_log_and_in_the_history(cluster: Cluster) -> None:
    store = cluster.store.by(MARIA)
    with structlog.testing.capture_logs() as logged:
        store.change(FEED, paused, "pause")
        store.move(FEED, TABLE, NodeId("n1"), name="shop.orders")
        store.ask(FEED, TABLE, TableVerb.STOP, name="shop.orders")
    expected = [
        ("maria", "pause", "", "running; version 1", "paused; version 2"),
        ("maria", "move table", "shop.orders", "", "n1"),
        ("maria", "stop table", "shop.orders", "", ""),
    ]
    assert _told(cluster)[1:] == expected
    lines = [line for line in logged if line["event"] == "audit"]
    fields = ("by", "action", "subject", "before", "after")
    assert [tuple(line.get(field, "") for field in fields) for line in lines] == expected
    assert {(line["role"], line["address"], line["changefeed"]) for line in lines} == {("operator", "10.0.0.7", "f")}


def test_what_changes_nothing_and_what_is_refused_is_no_change(cluster: Cluster) -> None:
    before = _told(cluster)
    with structlog.testing.capture_logs() as logged:
        cluster.store.by(MARIA).change(FEED, lambda info, _: info, "pause")
        with pytest.raises(ConflictError):
            cluster.store.by(MARIA).create(INFO)
    assert (_told(cluster), logged) == (before, [])


def test_a_changed_configuration_is_told_option_by_option_and_without_credentials(cluster: Cluster) -> None:
    def updated(info: ChangefeedInfo, _: ChangefeedStatus | None) -> ChangefeedInfo:
        configuration = Configuration.parse(
            {
                "id": "f",
                "source": "mongodb://u:hunter2hunter2@a",
                "sink": "mongodb://b",
                "filter": {"tables": ["shop.*"]},
            }
        )
        return replace(info, configuration=configuration, version=2)

    cluster.store.by(MARIA).change(FEED, updated, "update")
    _, _, _, before, after = _told(cluster)[-1]
    assert "filter.tables: shop.*" in after
    assert "hunter2" not in before + after
    assert after.endswith("version 2")


def test_the_history_keeps_the_newest_changes(cluster: Cluster) -> None:
    for number in range(MOST_ENTRIES + 3):
        cluster.store.by(MARIA).ask(FEED, TABLE, TableVerb.STOP, name=f"t{number}")
    told = _told(cluster)
    assert len(told) == MOST_ENTRIES
    assert told[-1][2] == f"t{MOST_ENTRIES + 2}"


def test_the_history_is_another_for_a_changefeed_whose_name_begins_alike(cluster: Cluster) -> None:
    longer = replace(INFO, configuration=INFO.configuration.model_copy(update={"id": "f-2"}))
    cluster.store.by(MARIA).create(longer)
    assert [told[0] for told in _told(cluster)] == ["the node itself"]
