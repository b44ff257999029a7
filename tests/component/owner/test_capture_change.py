"""A paused changefeed changes its capture: the owner folds the known DDL, and watches the source's DDL through the other capture."""

from __future__ import annotations

import pytest

from changefeed.capture import Capture
from changefeed.lifecycle import State
from changefeed.records.ddl import DdlState
from changefeed.records.requests import ChangefeedId, DesiredState
from tests.component.owner.conftest import Cluster

pytestmark = pytest.mark.since("6.0")  # on earlier servers both captures read DDL from the oplog


def pause_past(cluster: Cluster, id: ChangefeedId, ddls: int) -> None:
    """Pauses once `ddls` DDLs are done and all tables are past them. Waits until no pipeline runs."""
    cluster.until(lambda: cluster.settled(id, ddls))
    last_ts = max(record.position.ts for record in cluster.ddls(id))
    cluster.until(lambda: (status := cluster.status(id)) and status.checkpoint and status.checkpoint.ts > last_ts)
    cluster.change(id, DesiredState.PAUSED, capture=capture_of(cluster, id))
    cluster.until(lambda: cluster.obeyed(id) and stands_still(cluster, id), "stillness")


def stands_still(cluster: Cluster, id: ChangefeedId) -> bool:
    status = cluster.status(id)
    return status is not None and status.still


def capture_of(cluster: Cluster, id: ChangefeedId) -> Capture:
    status = cluster.status(id)
    assert status is not None
    return status.capture


def test_ddl_goes_on_by_the_other_capture_and_back(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("captures", database)
    led.until(lambda: led.began(feed))
    for number, capture in enumerate((Capture.CHANGE_STREAM, Capture.OPLOG, Capture.CHANGE_STREAM)):
        source.create_collection(f"before_{number}")
        pause_past(led, feed, 1 if number == 0 else 2)
        led.change(feed, DesiredState.PAUSED, capture=capture)
        led.until(lambda: led.obeyed(feed))
        assert (capture_of(led, feed), led.state(feed), led.ddls(feed)) == (capture, State.STOPPED, [])
        source.create_collection(f"meanwhile_{number}")
        led.change(feed, capture=capture)
        led.until(lambda: led.settled(feed, 1), "the DDL of the time in between")
        [record] = led.ddls(feed)
        assert (record.state, str(record.event.table)) == (DdlState.DONE, f"{database}.meanwhile_{number}")
        assert not stands_still(led, feed)
    names = {f"{when}_{number}" for when in ("before", "meanwhile") for number in range(3)}
    assert set(target.list_collection_names()) == names


def test_an_owner_that_dies_half_way_is_followed_by_one_that_does_the_rest(cluster: Cluster, database: str) -> None:
    source = cluster.source[database]
    feed = cluster.create("half", database)
    with cluster.processor():
        cluster.start_owner("o1", failpoints="capture_changing=kill")
        cluster.stand()
        cluster.start_owner("o2")
        cluster.stand()
        cluster.until(lambda: cluster.began(feed))
        source.create_collection("orders")
        pause_past(cluster, feed, 1)
        cluster.change(feed, DesiredState.PAUSED, capture=Capture.CHANGE_STREAM)
        cluster.died("o1")
        cluster.revoke_lease("o1")
        cluster.until(lambda: capture_of(cluster, feed) is Capture.CHANGE_STREAM and cluster.obeyed(feed))
        assert cluster.ddls(feed) == []


def test_a_change_where_it_is_not_possible_fails_and_is_taken_back(led: Cluster, database: str) -> None:
    """The admin API refuses it. The owner ignores such a change even if it is in etcd."""
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("open-ddl", database)
    led.until(lambda: led.began(feed))
    target.create_collection("orders", capped=True, size=4096)
    source.create_collection("orders")
    led.until(lambda: led.refusal(feed))
    led.change(feed, DesiredState.PAUSED)
    led.until(lambda: led.obeyed(feed))
    led.change(feed, DesiredState.PAUSED, capture=Capture.CHANGE_STREAM)
    led.until(lambda: led.obeyed(feed))
    assert (capture_of(led, feed), led.state(feed)) == (Capture.OPLOG, State.FAILED)
    target["orders"].drop()
    led.change(feed)
    led.resume_refused(feed)
    led.until(lambda: led.settled(feed, 1))
