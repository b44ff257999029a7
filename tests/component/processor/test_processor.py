"""Rows and DDL of a source arrive at a target through an owner and a processor."""

from __future__ import annotations

from functools import partial

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.lifecycle import State
from changefeed.records.node import NodeId
from changefeed.records.requests import ChangefeedId, DesiredState
from changefeed.table import TableName
from tests.component.processor.conftest import ReplicatingCluster
from tests.component.processor.workload import Beside, many_operations, write


def test_rows_of_all_kinds_arrive_with_ddl_between_them(standing: ReplicatingCluster, database: str) -> None:
    source = standing.source[database]
    source.create_collection("orders")
    feed = standing.create("kinds", database)
    standing.until(lambda: standing.began(feed), "the beginning")
    source["orders"].insert_many([{"_id": n, "n": n} for n in range(100)])
    source["orders"].update_many({"_id": {"$lt": 50}}, {"$set": {"x": "y"}, "$unset": {"n": ""}})
    source["orders"].delete_many({"_id": {"$gte": 90}})
    source.create_collection("items")
    source["items"].insert_one({"_id": 1})
    source["orders"].create_index("x")
    source["orders"].rename("sales")
    source["sales"].replace_one({"_id": 60}, {"z": 1})
    standing.equal(database)


def test_what_is_written_during_a_pause_arrives_after_it(standing: ReplicatingCluster, database: str) -> None:
    source = standing.source[database]
    source.create_collection("orders")
    feed = standing.create("paused", database)
    standing.until(lambda: standing.began(feed), "the beginning")
    source["orders"].insert_one({"_id": 1})
    standing.equal(database)
    standing.change(feed, DesiredState.PAUSED)
    node = standing.node("p1")
    standing.until(lambda: _run(standing, feed, node) == 0, "all pipelines to stand")
    source["orders"].insert_one({"_id": 2})
    source["orders"].create_index("x")
    source["orders"].update_one({"_id": 1}, {"$set": {"x": 1}})
    assert standing.target[f"{database}_to"]["orders"].count_documents({}) == 1
    standing.change(feed, DesiredState.RUNNING)
    standing.equal(database)


def test_a_spark_that_is_killed_is_started_again_and_nothing_is_lost(
    standing: ReplicatingCluster, database: str
) -> None:
    """Its Python workers may continue for a while. The window is retried only when they certainly write no more."""
    source = standing.source[database]
    source.create_collection("a")
    feed = standing.create("killed", database)
    standing.until(lambda: standing.began(feed), "the beginning")
    source["a"].insert_one({"_id": "first"})
    standing.equal(database)
    arrived = standing.target[f"{database}_to"]["a"]
    with Beside(partial(write, standing.source, database, ["a"], 10_000)):
        standing.until(lambda: arrived.count_documents({}) > 100, "some rows")
        standing.jvm("p1").kill()
    standing.equal(database)
    standing.until(lambda: _state(standing, feed) is State.NORMAL, "normal again")


def test_mixed_operations_over_many_tables_with_ddl_between_them_end_in_equality(
    standing: ReplicatingCluster, database: str
) -> None:
    """`make soak` runs the same for longer."""
    assert many_operations(standing, database, tables=8, operations=6_000) is None


def test_a_transaction_arrives_whole_with_the_tables_it_makes(standing: ReplicatingCluster, database: str) -> None:
    """Its row events and creates have one cluster time, so only positions tell which rows come before a create and which after it."""
    source = standing.source[database]
    source.create_collection("a")
    source.create_collection("b")
    feed = standing.create("transaction", database)
    standing.until(lambda: standing.began(feed), "the beginning")
    for number in range(5):
        with standing.source.start_session() as session, session.start_transaction():
            source["a"].insert_one({"_id": number}, session=session)
            source[f"c{number}"].insert_one({"_id": 1}, session=session)
            source["b"].insert_many([{"_id": f"{number}-{n}"} for n in range(3)], session=session)
            source["a"].update_one({"_id": number}, {"$set": {"x": number}}, session=session)
            source[f"c{number}"].update_one({"_id": 1}, {"$set": {"y": [number]}}, session=session)
    standing.equal(database)
    times = [record.position.ts for record in standing.ddls(feed)]
    assert len(set(times)) == len(times) == 5


def test_a_changefeed_that_is_to_end_before_its_copy_can_ends_with_the_copy(
    standing: ReplicatingCluster, database: str
) -> None:
    """Chunks are read later than a `target` time in the past, so the changefeed ends when the copy is done."""
    standing.source[database]["orders"].insert_many([{"_id": n} for n in range(100)])
    past = ClusterTime.from_bson(standing.source.admin.command("ping")["operationTime"])
    feed = standing.create("late", database, start="initial", target=str(past))
    standing.until(lambda: _state(standing, feed) is State.FINISHED, "its end")
    assert standing.differences(database) == []


def _run(cluster: ReplicatingCluster, feed: ChangefeedId, node: NodeId) -> int | None:
    report = cluster.report(feed, node)
    return report.run if report else None


def test_one_changefeed_that_fails_leaves_another_alone(standing: ReplicatingCluster, database: str) -> None:
    source = standing.source[database]
    source.create_collection("orders")
    unreachable = "mongodb://127.0.0.1:1/?replicaSet=none&serverSelectionTimeoutMS=500"
    away = standing.create("away", database, sink=unreachable)
    feed = standing.create("here", database)
    standing.until(lambda: standing.began(feed) and standing.began(away), "both beginnings")
    source["orders"].insert_many([{"_id": n} for n in range(10)])
    standing.until(lambda: standing.target[f"{database}_to"]["orders"].count_documents({}) == 10, "the rows of one")
    standing.until(lambda: _state(standing, away) is State.WARNING, "the warning of the other")
    assert _state(standing, feed) is State.NORMAL


def _state(cluster: ReplicatingCluster, feed: ChangefeedId) -> State | None:
    status = cluster.status(feed)
    return status.lifecycle.state if status else None


def test_a_held_table_stands_exactly_at_its_barrier_while_others_flow(
    cluster: ReplicatingCluster, database: str
) -> None:
    source, target = cluster.source[database], cluster.target[f"{database}_to"]
    source.create_collection("held")
    source.create_collection("free")
    owner = cluster.scripted("held", database)
    held, free = (owner.knows(TableName(database, name)) for name in ("held", "free"))
    cluster.start_processor("p1")
    node = cluster.node("p1")
    owner.barrier(owner.start)
    owner.assign(node, {held: owner.start, free: owner.start})
    source["held"].insert_one({"_id": "before"})
    gate = owner.now()
    for number in range(5):
        source["held"].insert_one({"_id": number})
        source["free"].insert_one({"_id": number})
        owner.barrier(owner.now(), {held: gate})
        cluster.until(lambda: target["free"].find_one({"_id": number}), "the free table")  # noqa: B023 - called in this iteration
    report = owner.report(node)
    assert report is not None
    assert report.of(held) == gate
    assert [row["_id"] for row in target["held"].find()] == ["before"]
    owner.barrier(owner.now())
    cluster.equal(database)


@pytest.mark.parametrize("more", [{}, pytest.param({"update_new": {"hidden": True}}, marks=pytest.mark.since("6.0"))])
def test_rows_that_the_user_ignores_stay_away(
    standing: ReplicatingCluster, database: str, more: dict[str, object]
) -> None:
    source, target = standing.source[database], standing.target[f"{database}_to"]
    source.create_collection("audit")
    rules = [
        {
            "tables": [f"{database}.audit"],
            "ignore": ["delete"],
            "ignore_where": {"insert": {"level": "debug"}, **more},
        },
        {"tables": [f"{database}.a*"], "ignore": ["replace"]},
    ]
    tables = [f"{database}.*", f"!{database}.tmp_*", f"!{database}.old"]
    feed = standing.create(f"ignoring-{len(more)}", database, filter={"tables": tables, "events": rules})
    standing.until(lambda: standing.began(feed), "the beginning")
    source["tmp_1"].insert_one({"_id": 1})
    source["old"].insert_one({"_id": 1})
    source["audit"].insert_many([{"_id": 1, "level": "debug"}, {"_id": 2, "level": "info"}, {"_id": 3}])
    source["audit"].delete_one({"_id": 3})
    source["audit"].replace_one({"_id": 2}, {"level": "replaced"})
    source["audit"].insert_one({"_id": 4})
    standing.until(lambda: target["audit"].find_one({"_id": 4}), "the last row")
    assert list(target["audit"].find(sort=[("_id", 1)])) == [{"_id": 2, "level": "info"}, {"_id": 3}, {"_id": 4}]
    assert target.list_collection_names() == ["audit"]


def test_a_copy_leaves_out_the_rows_whose_inserts_the_user_ignores(standing: ReplicatingCluster, database: str) -> None:
    source, target = standing.source[database], standing.target[f"{database}_to"]
    levels = ["debug", "info", None]
    source["audit"].insert_many([{"_id": n, "level": levels[n % 3]} for n in range(300)])
    source["whole"].insert_many([{"_id": n, "level": levels[n % 3]} for n in range(30)])
    rules = [
        {"tables": [f"{database}.audit"], "ignore": ["update"], "ignore_where": {"insert": {"level": "debug"}}},
        {"tables": [f"{database}.whole"], "ignore": ["insert"]},
    ]
    events = {"tables": [f"{database}.*"], "events": rules}
    standing.create("copied-in-part", database, start="initial", filter=events)
    source["audit"].insert_many([{"_id": 300, "level": "debug"}, {"_id": 301, "level": "info"}])
    standing.until(lambda: target["audit"].find_one({"_id": 301}), "the last row")
    standing.until(lambda: target["whole"].count_documents({}) == 30, "the table whose inserts are ignored from now on")
    assert target["audit"].distinct("level") == [None, "info"]
    assert target["audit"].count_documents({}) == 201


def test_a_start_before_the_oplog_is_an_error_that_says_so(standing: ReplicatingCluster, database: str) -> None:
    source = standing.source[database]
    source.create_collection("orders")
    source["orders"].insert_one({"_id": 1})
    feed = standing.create("past", database, start="2001-01-01T00:00:00Z")
    standing.until(lambda: _state(standing, feed) is State.FAILED, "the failure")
    status = standing.status(feed)
    assert status is not None
    assert status.lifecycle.error is not None
    assert status.lifecycle.error.code == "history_lost"


def test_an_initial_copy_is_followed_by_what_happened_meanwhile(standing: ReplicatingCluster, database: str) -> None:
    source = standing.source[database]
    source["rows"].insert_many([{"_id": n, "n": n} for n in range(2000)])
    source["rows"].create_index("n", unique=True)
    source["few"].insert_one({"_id": "text"})
    standing.create("copied", database, start="initial")
    for number in range(200):
        source["rows"].update_one({"_id": number}, {"$set": {"during": number}})
        source["rows"].delete_one({"_id": 1999 - number})
    standing.equal(database)
    source["rows"].insert_one({"_id": "afterwards", "n": "afterwards"})
    standing.equal(database)
