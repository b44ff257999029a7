"""The reported lag of a changefeed whose source writes nothing but its periodic no-op."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from changefeed.records.requests import ChangefeedId
from devstack.mongodb.server import Client, MongoDB
from tests.component.owner.conftest import Cluster

_NOOP_SECONDS = 3


@pytest.fixture
def server(own_mongodb: Callable[..., MongoDB]) -> MongoDB:
    return own_mongodb("silent", parameters={"periodicNoopIntervalSecs": str(_NOOP_SECONDS)})


@pytest.fixture
def over_silence(
    etcd_endpoint: str, server: MongoDB, target_uri: str, source_client: Client, target_client: Client
) -> Iterator[Cluster]:
    with server.client() as source:
        made = Cluster(etcd_endpoint, server.uri, target_uri, source, target_client)
        made.start_owner("o1")
        with made.processor():
            yield made
        made.close()


def lag(cluster: Cluster, feed: ChangefeedId) -> float:
    status = cluster.status(feed)
    found = status.lag(datetime.now(UTC)) if status else None
    return found.total_seconds() if found is not None else float("inf")


@pytest.mark.soak
def test_lag_is_nothing_while_nothing_is_left_and_grows_while_the_source_is_away(
    over_silence: Cluster, server: MongoDB, database: str
) -> None:
    cluster = over_silence
    feed = cluster.create("silence", database)
    cluster.source[database]["orders"].insert_one({})
    cluster.until(lambda: cluster.began(feed) and lag(cluster, feed) == 0, "nothing to be left")
    lags = []
    until = time.monotonic() + 3 * _NOOP_SECONDS
    while time.monotonic() < until:
        lags.append(lag(cluster, feed))
        time.sleep(0.05)
    assert max(lags) == 0
    server.kill()
    cluster.until(lambda: lag(cluster, feed) > 2 * _NOOP_SECONDS, "the lag to grow")
    server.start()
    cluster.until(lambda: lag(cluster, feed) == 0, "the lag to be over")
