"""A real owner on a real etcd applies the source's DDL to the target, while processors only report positions."""

from __future__ import annotations

from tests.component.owner.conftest import Cluster


def test_ddl_of_every_kind_reaches_the_target_in_order(cluster: Cluster, database: str) -> None:
    target = cluster.target[f"{database}_to"]
    source = cluster.source[database]
    cluster.start_owner("o1")
    feed = cluster.create("f", database)
    with cluster.processor():
        cluster.until(lambda: cluster.began(feed))
        source.create_collection("orders", validator={"total": {"$gte": 0}})
        source["orders"].create_index("customer", unique=True)
        source.create_collection("items")
        source["items"].rename("things")
        source["orders"].drop_index("customer_1")
        source["orders"].create_index([("at", 1)], expireAfterSeconds=60)
        source.create_collection("gone")
        source["gone"].drop()
        cluster.until(lambda: cluster.settled(feed, 8), "all DDL")
        assert sorted(target.list_collection_names()) == ["orders", "things"]
        indexes = {index["name"]: index for index in target["orders"].list_indexes()}
        assert sorted(indexes) == ["_id_", "at_1"]
        assert indexes["at_1"]["expireAfterSeconds"] >= 50 * 365 * 86_400
