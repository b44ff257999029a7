"""A write that only the primary has is beyond the majority's time, also just after the primary was started again."""

from __future__ import annotations

from contextlib import suppress

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SourceUnavailable
from devstack.mongodb.server import TESTING, Client
from source.connection import connect
from source.oplog.window import majority_time
from tests.conftest import ReplicaSets


def test_a_primary_that_was_started_again_does_not_tell_its_newest_time_as_the_majoritys(
    own_replica_set: ReplicaSets,
) -> None:
    members = own_replica_set("started", parameters=TESTING, election_timeout_ms=60_000)
    primary = members.primary()
    members.hold_majority()
    primary.kill()
    primary.start()
    with primary.client() as client:
        client.admin.command("replSetStepUp")
    members.wait_for_primary()
    with Client(members.uri, w=1) as client:
        client["shop"]["orders"].insert_one({"_id": "held"})
        [held] = client["local"]["oplog.rs"].find({"ns": "shop.orders", "op": "i"})
    with connect(members.uri) as source, suppress(SourceUnavailable):  # refused by servers before 5.0
        assert majority_time(source) < ClusterTime.from_bson(held["ts"])
