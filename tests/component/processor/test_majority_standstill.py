"""The majority of the source's or target's set stops: the error names the cause, and disappears when the majority resumes."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from changefeed.lifecycle import State
from changefeed.records.requests import ChangefeedId
from devstack.mongodb.server import TESTING, Client, MongoDB
from tests.component.processor.conftest import ReplicatingCluster
from tests.conftest import ReplicaSets

_SOON_SECONDS = 30.0
"""Takes a second or two on an idle machine."""


def _replicating(cluster: ReplicatingCluster, source_uri: str, target_uri: str) -> ChangefeedId:
    cluster.source, cluster.target = Client(source_uri), Client(target_uri)
    cluster.start_owner("o1")
    cluster.start_processor("p1")
    cluster.source["shop"].create_collection("a")
    cluster.target["shop_to"].create_collection("a")
    feed = cluster.create("f", "shop", source=source_uri, sink=target_uri)
    cluster.until(lambda: cluster.began(feed), "the beginning")
    cluster.source["shop"]["a"].insert_one({"_id": "before"})
    cluster.equal("shop")
    return feed


def _says(cluster: ReplicatingCluster, feed: ChangefeedId, code: str, replica_set: str) -> bool:
    return cluster.error(feed).startswith(code) and (
        f"the majority of replica set '{replica_set}' has not moved since" in cluster.error(feed)
    )


def _expect_to_last(cluster: ReplicatingCluster, feed: ChangefeedId, code: str, *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert cluster.state(feed) is State.WARNING
        assert cluster.error(feed).startswith(code)
        time.sleep(0.5)  # the state must last, which only a wait can show


@pytest.mark.soak
def test_at_the_source(
    cluster: ReplicatingCluster, own_replica_set: ReplicaSets, own_mongodb: Callable[..., MongoDB]
) -> None:
    members = own_replica_set("source", parameters=TESTING)
    feed = _replicating(cluster, members.uri, own_mongodb("target").uri)
    members.hold_majority()
    with Client(members.uri, w=1) as source:
        source["shop"]["a"].insert_one({"_id": "held"})
    cluster.until(lambda: _says(cluster, feed, "source_majority_stalled", "source"), "the truth")
    _expect_to_last(cluster, feed, "source_majority_stalled", seconds=5)
    assert cluster.target["shop_to"]["a"].count_documents({"_id": "held"}) == 0
    members.release_majority()
    cluster.equal("shop", within=_SOON_SECONDS)
    cluster.until(lambda: cluster.state(feed) is State.NORMAL, "normal again")


@pytest.mark.soak
def test_at_the_target(
    cluster: ReplicatingCluster, own_replica_set: ReplicaSets, own_mongodb: Callable[..., MongoDB]
) -> None:
    members = own_replica_set("target", parameters=TESTING)
    feed = _replicating(cluster, own_mongodb("source").uri, members.uri)
    members.hold_majority()
    cluster.source["shop"]["a"].insert_one({"_id": "held"})
    cluster.until(lambda: _says(cluster, feed, "sink_majority_stalled", "target"), "the truth")
    cluster.source["shop"].create_collection("b")
    _expect_to_last(cluster, feed, "sink_majority_stalled", seconds=5)
    members.release_majority()
    cluster.equal("shop", within=_SOON_SECONDS)
    cluster.until(lambda: cluster.state(feed) is State.NORMAL, "normal again")
