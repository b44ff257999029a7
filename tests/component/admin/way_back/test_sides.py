"""What a cut-over finds in a side's oplog, and what it says of one that does not reach back any more."""

from __future__ import annotations

import pytest

from admin.way_back.sides import CutOverSide
from changefeed.config.uri import ConnectionUri
from devstack.mongodb.server import MongoDB
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.served.router_server import RouterServer
from tests.forgetful import forget


def test_what_others_wrote_is_named_and_where_the_oplog_begins_later_that_it_is_not_known(forgetful: MongoDB) -> None:
    side = CutOverSide("source", ConnectionUri(forgetful.uri))
    with forgetful.client() as client:
        client["shop"]["orders"].insert_one({"_id": 0})
        before = side.newest()
        client["shop"]["orders"].insert_many([{"_id": 1}, {"_id": 2}])
        client["shop"]["other"].insert_one({"_id": 1})
        until = side.newest()
        assert side.reaches(before)
        assert side.foreign(lambda name: name.coll == "orders", before, until) == ("source: shop.orders: 2 writes",)
        forget(client, until.to_bson())
    assert not side.reaches(before)
    [unknown] = side.foreign(lambda name: name.coll == "orders", before, until)
    assert unknown == f"source: its oplog does not reach back to {before}: what was written since then is not known"


@pytest.mark.since("5.0")  # the development stack's clusters reshard
def test_a_sharded_side_has_no_way_back(cluster: ShardedCluster) -> None:
    """Neither by its config servers nor by a router, which are refused before anything is asked for."""
    with RouterServer(cluster) as router:
        for uri in (cluster.config.uri, router.uri):
            [refused] = CutOverSide("target", ConnectionUri(uri)).obstacles(blocks=True)
            assert "there is a way back between replica sets only" in refused
