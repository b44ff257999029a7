"""DDL of all kinds affects tables before or during their initial copy; both sides end equal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from devstack.mongodb.server import Client
from tests.component.processor.conftest import ReplicatingCluster
from tests.component.processor.workload import Beside, write

_TABLES = ["renamed", "moved", "dropped", "again", "unique", "modified", "onto", "replaced", "plain"]


def _fill(source: Client, database: str) -> None:
    for table in _TABLES:
        source[database][table].insert_many([{"_id": n, "a": n, "u": n // 2, "text": "x" * 500} for n in range(400)])
    source[database]["modified"].create_index("a")
    source[database].create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
    source[database]["clustered"].insert_many([{"_id": n, "a": n} for n in range(200)])
    source[database].create_collection("series", timeseries={"timeField": "at", "metaField": "sensor"})


def _change(source: Client, database: str) -> None:
    """Runs every DDL with row changes before and after it."""
    db = source[database]
    for table in _TABLES:
        db[table].update_many({"_id": {"$lt": 20}}, {"$set": {"b": 1}, "$unset": {"u": ""}})
    db["renamed"].rename("new_name")
    db["moved"].rename("aside")
    db["aside"].rename("moved")
    db["dropped"].drop()
    db["again"].drop()
    db["again"].insert_many([{"_id": n, "again": True} for n in range(50)])
    db["unique"].delete_many({"_id": {"$mod": [2, 1]}})
    db["unique"].update_many({"u": None}, [{"$set": {"u": {"$concat": ["v", {"$toString": "$_id"}]}}}])
    db["unique"].create_index("u", unique=True)
    db["modified"].drop_index("a_1")
    db["modified"].create_index([("a", -1), ("b", 1)])
    db.command("collMod", "modified", validator={"a": {"$gte": 0}}, validationAction="warn")
    db["replaced"].rename("onto", dropTarget=True)
    for table in ("new_name", "moved", "again", "unique", "modified", "onto", "plain", "clustered"):
        db[table].update_many({"_id": {"$lt": 10}}, {"$set": {"behind": True}})
        db[table].delete_many({"_id": {"$in": [3, 4, 40]}})


@pytest.mark.since("6.0")
def test_ddl_before_and_during_initial_copies_ends_in_equality(
    cluster: ReplicatingCluster, database: str, fresh_database: Callable[[], str]
) -> None:
    """First without a processor, so that each copy starts long after its DDL; then while copies run."""
    during = fresh_database()
    _fill(cluster.source, database)
    cluster.start_owner("o1")
    before = cluster.create("before", database, start="initial")
    cluster.until(lambda: cluster.began(before), "the beginning")
    _change(cluster.source, database)
    cluster.start_processor("p1")
    cluster.equal(database)
    _fill(cluster.source, during)
    beside = cluster.create("during", during, start="initial")
    with Beside(partial(write, cluster.source, during, ["plain", "clustered"], 1_000)):
        cluster.until(lambda: cluster.began(beside), "the beginning of the other")
        _change(cluster.source, during)
    cluster.equal(during)
    for feed in (before, beside):
        status = cluster.status(feed)
        assert status is not None
        assert status.lifecycle.error is None


def test_documents_that_the_server_moves_itself_arrive(standing: ReplicatingCluster, database: str) -> None:
    """By convertToCapped and by a rename across databases; some change streams do not show these rows."""
    source, elsewhere = standing.source[database], standing.source[f"{database}_from"]
    feed = standing.create("moves", database)
    standing.until(lambda: standing.began(feed), "the beginning")
    for table in (source["logs"], elsewhere["moved"]):
        table.insert_many([{"_id": n, "line": "x" * 100} for n in range(300)])
        table.create_index("line")
    source.command("convertToCapped", "logs", size=1 << 20)
    standing.source.admin.command("renameCollection", f"{elsewhere.name}.moved", to=f"{database}.moved")
    for name in ("logs", "moved"):
        source[name].insert_one({"_id": "behind"})
    standing.equal(database)
    for name in ("logs", "moved"):
        assert standing.target[f"{database}_to"][name].count_documents({}) == 301
    assert not standing.error(feed)
    standing.source.drop_database(elsewhere)
