"""What a cut-over finds in a side's oplog, and what it says of one that does not reach back any more."""

from __future__ import annotations

import pytest

from admin.preflight.source_probe import newest_end, newest_start
from admin.way_back.sides import CutOverSide
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.config.uri import ConnectionUri
from changefeed.documents.document import Document
from changefeed.errors import SourceUnavailable
from changefeed.records.requests import Expiry
from changefeed.table import TableName
from devstack.mongodb.server import TESTING, Client, MongoDB
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.served.router_server import RouterServer
from tests.conftest import ReplicaSets
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


def test_an_expiry_whose_table_or_index_is_gone_is_told_and_is_no_failure(
    source_uri: str, source_client: Client, database: str
) -> None:
    side = CutOverSide("source", ConnectionUri(source_uri))
    tables = source_client[database]
    for name in ("dropped", "bare", "kept"):
        tables[name].create_index("at", name="at_1", expireAfterSeconds=60)
    expiries = side.expiries(lambda name: name.db == database)
    tables.drop_collection("dropped")
    tables["bare"].drop_index("at_1")
    side.suspend(expiries)
    assert tables["kept"].index_information()["at_1"]["expireAfterSeconds"] > 60
    restored = side.restore(expiries)
    assert tables["kept"].index_information()["at_1"]["expireAfterSeconds"] == 60
    assert restored.failed == []
    assert sorted(text.partition(";")[0] for text in restored.gone) == [
        f"index at_1 of {database}.{name} is not there any more" for name in ("bare", "dropped")
    ]
    assert restored.gone[0].endswith('"index": {"name": "at_1", "expireAfterSeconds": 60}})')


def test_a_side_that_is_gone_says_so_before_any_expiry_is_tried() -> None:
    side = CutOverSide("source", ConnectionUri("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200"))
    expiry = Expiry(table=TableName("shop", "t"), index="at_1", after=Document.of({"expireAfterSeconds": 60}))
    with pytest.raises(SourceUnavailable, match="reaching the source"):
        side.restore([expiry] * 100)
    with pytest.raises(SourceUnavailable):
        side.block(blocked=False)


def test_a_cut_over_ends_after_all_that_was_acknowledged_though_the_majority_has_it_later(
    own_replica_set: ReplicaSets,
) -> None:
    members = own_replica_set("lagging", parameters=TESTING, election_timeout_ms=60_000)
    configuration = Configuration.parse({"id": "f", "source": members.uri, "sink": "blackhole://"})
    with Client(members.uri, w=1) as client:
        members.hold_majority()
        client["shop"]["orders"].insert_one({"_id": "last"})
        [last] = client["local"]["oplog.rs"].find({"ns": "shop.orders", "op": "i"})
        written_ts = ClusterTime.from_bson(last["ts"])
        assert newest_start(configuration).ts <= written_ts
        assert newest_end(configuration) > written_ts
        assert CutOverSide("source", configuration.source).newest() >= written_ts


@pytest.mark.since("5.0")  # the development stack's clusters reshard
def test_a_sharded_side_has_no_way_back(cluster: ShardedCluster) -> None:
    """Neither by its config servers nor by a router, which are refused before anything is asked for."""
    with RouterServer(cluster) as router:
        for uri in (cluster.config.uri, router.uri):
            [refused] = CutOverSide("target", ConnectionUri(uri)).obstacles(blocks=True)
            assert "there is a way back between replica sets only" in refused
