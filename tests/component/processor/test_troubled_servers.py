"""A server refuses commands, or others write to the target: the changefeed reports it, the rows wait, and continue afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from changefeed.lifecycle import State
from changefeed.records.requests import ChangefeedId
from devstack.mongodb.server import TESTING, Client, MongoDB
from tests.component.processor.conftest import ReplicatingCluster

_WRITES = ("insert", "update", "delete", "bulkWrite")
_OUT_OF_DISK_SPACE, _USER_WRITES_BLOCKED, _UNAUTHORIZED = 14031, 371, 13


@contextmanager
def failing(server: Client, commands: tuple[str, ...], code: int) -> Iterator[None]:
    """The commands fail for Sluice, not for the test."""
    data = {"failCommands": list(commands), "errorCode": code, "appName": "sluice"}
    server.admin.command("configureFailPoint", "failCommand", mode="alwaysOn", data=data)
    try:
        yield
    finally:
        server.admin.command("configureFailPoint", "failCommand", mode="off")


def _is(cluster: ReplicatingCluster, feed: ChangefeedId, *states: State) -> bool:
    status = cluster.status(feed)
    return status is not None and status.lifecycle.state in states


def _change_of_target(target: Client, database: str) -> None:
    target[f"{database}_to"]["a"].delete_one({"_id": "first"})


def _expect_recovery(cluster: ReplicatingCluster, feed: ChangefeedId, database: str) -> None:
    cluster.equal(database)
    cluster.until(lambda: _is(cluster, feed, State.NORMAL), "normal again")


@pytest.fixture
def troubled(cluster: ReplicatingCluster, own_mongodb: Callable[..., MongoDB]) -> Iterator[Callable[..., ChangefeedId]]:
    """Creates changefeeds of the database `shop` between servers that only this test uses."""
    servers = [own_mongodb(name, parameters=TESTING) for name in ("source", "target")]
    with Client(servers[0].uri) as source, Client(servers[1].uri) as target:
        cluster.source, cluster.target = source, target
        cluster.start_owner("o1")
        cluster.start_processor("p1")

        def create(id: str, database: str, **configuration: Any) -> ChangefeedId:
            source[database].create_collection("a")
            target[f"{database}_to"].create_collection("a")
            feed = cluster.create(id, database, source=servers[0].uri, sink=servers[1].uri, **configuration)
            cluster.until(lambda: cluster.began(feed), "the beginning")
            source[database]["a"].insert_one({"_id": "first"})
            cluster.equal(database)
            return feed

        yield create


@pytest.mark.soak
def test_trouble_is_told_waited_out_and_over_when_its_cause_is(
    cluster: ReplicatingCluster, troubled: Callable[..., ChangefeedId]
) -> None:
    feed = troubled("f", "shop")
    rows, waiting = cluster.source["shop"]["a"], (State.WARNING, State.PENDING)
    for code in (_OUT_OF_DISK_SPACE, _USER_WRITES_BLOCKED):
        with failing(cluster.target, _WRITES, code):
            rows.insert_one({"_id": code})
            cluster.until(lambda: _is(cluster, feed, *waiting), "a warning")
            assert cluster.error(feed).startswith("sink_unavailable")
        _expect_recovery(cluster, feed, "shop")
    with failing(cluster.target, _WRITES, _UNAUTHORIZED):
        rows.insert_one({"_id": "refused"})
        cluster.until(lambda: _is(cluster, feed, *waiting), "a warning")
        assert cluster.error(feed).startswith("sink_refused")
    _expect_recovery(cluster, feed, "shop")
    with failing(cluster.source, ("find",), _UNAUTHORIZED):
        rows.insert_one({"_id": "unread"})
        cluster.until(lambda: _is(cluster, feed, *waiting), "a warning")
        assert "source" in cluster.error(feed)
    _expect_recovery(cluster, feed, "shop")
    _change_of_target(cluster.target, "shop")
    rows.update_one({"_id": "first"}, {"$set": {"repaired": True}})
    _expect_recovery(cluster, feed, "shop")
    strict = troubled("strict", "bank", on_divergence="fail")
    _change_of_target(cluster.target, "bank")
    cluster.source["bank"]["a"].update_one({"_id": "first"}, {"$set": {"x": 1}})
    cluster.until(lambda: _is(cluster, strict, State.FAILED), "the failure of the strict one")
    assert cluster.error(strict).startswith("divergence")
    assert "'_id': 'first'" in cluster.error(strict)
    assert _is(cluster, feed, State.NORMAL)
