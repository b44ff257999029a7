"""Rows and DDL of a source arrive at a target through an owner and processors."""

from __future__ import annotations

from tests.component.processor.conftest import ReplicatingCluster
from tests.independent_compare import differences


def test_rows_of_all_kinds_arrive_with_ddl_between_them(cluster: ReplicatingCluster, database: str) -> None:
    source = cluster.source[database]
    source.create_collection("orders")
    cluster.start_owner("o1")
    cluster.start_processor("p1")
    feed = cluster.create("f", database)
    cluster.until(lambda: cluster.began(feed), "the beginning")
    source["orders"].insert_many([{"_id": n, "n": n} for n in range(100)])
    source["orders"].update_many({"_id": {"$lt": 50}}, {"$set": {"x": "y"}, "$unset": {"n": ""}})
    source["orders"].delete_many({"_id": {"$gte": 90}})
    source.create_collection("items")
    source["items"].insert_one({"_id": 1})
    source["orders"].create_index("x")
    source["orders"].rename("sales")
    source["sales"].replace_one({"_id": 60}, {"z": 1})
    cluster.until(lambda: not differences(cluster.source, database, cluster.target, f"{database}_to"), "equality")
