"""DDL of each kind is applied at the target in the source's order, while processors only report positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bson.binary import Binary

from changefeed.records.ddl import DdlState
from tests.component.owner.conftest import Cluster, Database

_FIFTY_YEARS = 50 * 365 * 86_400


def options(db: Database, name: str) -> dict[str, Any]:
    [found] = db.list_collections(filter={"name": name})
    return dict(found["options"])


def uuid_of(db: Database, name: str) -> Binary:
    [found] = db.list_collections(filter={"name": name})
    uuid: Binary = found["info"]["uuid"]
    return uuid


@pytest.mark.since("6.0")
def test_creates_keep_their_options(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("creates", database)
    led.until(lambda: led.began(feed))
    source.create_collection("plain")
    source.create_collection("capped", capped=True, size=4096, max=10)
    source.create_collection("strict", validator={"total": {"$gte": 0}}, validationLevel="moderate")
    source.create_collection("french", collation={"locale": "fr", "strength": 2})
    source.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
    source.create_collection("series", timeseries={"timeField": "at", "metaField": "sensor"})
    source.create_collection("seen", viewOn="plain", pipeline=[{"$match": {"open": True}}])
    led.until(lambda: led.settled(feed, 7), "all creates")
    assert options(target, "plain") == {}
    assert options(target, "capped") == options(source, "capped")
    assert options(target, "strict") == options(source, "strict")
    assert options(target, "french")["collation"] == options(source, "french")["collation"]
    assert "clusteredIndex" in options(target, "clustered")
    assert options(target, "series")["timeseries"]["metaField"] == "sensor"
    assert options(target, "seen") == {"viewOn": "plain", "pipeline": [{"$match": {"open": True}}]}


def test_only_what_has_rows_is_given_to_a_node(led: Cluster, database: str) -> None:
    source = led.source[database]
    feed = led.create("rows", database)
    led.until(lambda: led.began(feed))
    source.create_collection("plain")
    source.create_collection("seen", viewOn="plain", pipeline=[])
    led.until(lambda: led.settled(feed, 2) and led.assigned(feed))
    assert list(led.assigned(feed)) == [uuid_of(source, "plain").hex()]


def test_indexes_keep_what_they_refuse_and_what_they_leave_out(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("indexes", database)
    led.until(lambda: led.began(feed))
    orders = source["orders"]
    source.create_collection("orders")
    orders.create_index("code", unique=True)
    orders.create_index("note", sparse=True)
    orders.create_index("total", partialFilterExpression={"total": {"$gt": 100}})
    orders.create_index("at", expireAfterSeconds=60)
    orders.create_index([("customer", 1), ("at", -1)])
    orders.create_index("passing")
    orders.drop_index("passing_1")
    led.until(lambda: led.settled(feed, 8), "all index DDL")
    found = target["orders"].index_information()
    assert sorted(found) == ["_id_", "at_1", "code_1", "customer_1_at_-1", "note_1", "total_1"]
    assert found["code_1"]["unique"] is True
    assert found["note_1"]["sparse"] is True
    assert found["total_1"]["partialFilterExpression"] == {"total": {"$gt": 100}}
    assert found["at_1"]["expireAfterSeconds"] >= _FIFTY_YEARS
    assert found["customer_1_at_-1"]["key"] == [("customer", 1), ("at", -1)]


def test_coll_mod_changes_a_validator(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("modify", database)
    led.until(lambda: led.began(feed))
    source.create_collection("strict", validator={"total": {"$gte": 0}})
    source.command("collMod", "strict", validator={"total": {"$gte": 10}}, validationAction="warn")
    led.until(lambda: led.settled(feed, 2))
    assert options(target, "strict") == options(source, "strict")
    assert options(target, "strict")["validator"] == {"total": {"$gte": 10}}
    assert options(target, "strict")["validationAction"] == "warn"


def test_renames_swap_replace_and_move_nothing(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("renames", database)
    led.until(lambda: led.began(feed))
    for name in ("a", "b", "new", "old"):
        source.create_collection(name)
        source[name].create_index(f"{name}_field")
    led.until(lambda: led.settled(feed, 8) and len(led.assigned(feed)) == 4)
    before = led.assigned(feed)
    source["a"].rename("tmp")
    source["b"].rename("a")
    source["tmp"].rename("b")
    source["new"].rename("old", dropTarget=True)
    led.until(lambda: led.settled(feed, 12) and len(led.assigned(feed)) == 3, "all renames")
    assert sorted(target.list_collection_names()) == ["a", "b", "old"]
    fields = {name: sorted(target[name].index_information())[1] for name in ("a", "b", "old")}
    assert fields == {"a": "b_field_1", "b": "a_field_1", "old": "new_field_1"}
    assert led.assigned(feed).items() <= before.items()


def test_a_dropped_and_created_table_is_another_one(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("again", database)
    led.until(lambda: led.began(feed))
    source.create_collection("orders")
    source["orders"].create_index("old", unique=True)
    led.until(lambda: led.settled(feed, 2))
    first = uuid_of(target, "orders")
    source["orders"].drop()
    source.create_collection("orders")
    source["orders"].create_index("new")
    led.until(lambda: led.settled(feed, 5))
    assert uuid_of(target, "orders") != first
    assert sorted(target["orders"].index_information()) == ["_id_", "new_1"]
    led.until(lambda: list(led.assigned(feed)) == [uuid_of(source, "orders").hex()], "one table with a node")


def test_a_dropped_database_takes_its_tables_and_views_and_nothing_else(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("dropdb", database)
    led.until(lambda: led.began(feed))
    source.create_collection("orders")
    source.create_collection("items")
    source.create_collection("seen", viewOn="orders", pipeline=[])
    led.until(lambda: led.settled(feed, 3))
    target.create_collection("somebody_elses")
    led.source.drop_database(database)
    led.until(lambda: led.settled(feed, 6), "the drops")
    assert [str(record.event.type) for record in led.ddls(feed)[3:]] == ["drop", "drop", "drop"]
    assert sorted(target.list_collection_names()) == ["somebody_elses", "system.views"]
    assert list(target["system.views"].find()) == []
    led.until(lambda: led.assigned(feed) == {}, "no table with a node")


def test_renames_through_the_edge_of_the_filter(led: Cluster, database: str) -> None:
    """A rename into the filter is copied as a new table. A rename out of it is a drop. A rename back into it is copied again."""
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("edge", database, filter={"tables": [f"{database}.*", f"!{database}.private_*"]})
    led.until(lambda: led.began(feed))
    source.create_collection("private_a", validator={"total": {"$gte": 0}})
    source["private_a"].create_index("code", unique=True)
    source["private_a"].rename("a")
    led.until(lambda: led.settled(feed, 1) and led.assigned(feed), "the table to enter")
    [table] = led.assigned(feed)
    assert table == uuid_of(source, "a").hex()
    assert led.copied(feed, table)
    target.create_collection("a")
    source["a"].rename("private_b")
    led.until(lambda: led.settled(feed, 2) and led.assigned(feed) == {}, "the table to leave")
    assert target.list_collection_names() == []
    source["private_b"].rename("c")
    led.until(lambda: led.settled(feed, 3) and list(led.assigned(feed)) == [table], "the table to enter again")
    assert led.copied(feed, table)
    status = led.status(feed)
    assert status is not None
    assert status.lifecycle.error is None


def test_in_and_out_and_in_again_at_once_is_taken_in_order(led: Cluster, database: str) -> None:
    """The lookup finds the table as it was at each rename, although it has changed since."""
    source = led.source[database]
    rule = {"tables": [f"{database}.b"], "ignore": ["dropIndexes"]}
    wanted = {"tables": [f"{database}.*", f"!{database}.private_*"], "events": [rule]}
    feed = led.create("edges", database, filter=wanted)
    led.until(lambda: led.began(feed))
    source.create_collection("a")
    source["a"].create_index("first")
    source["a"].rename("private_1")
    source["private_1"].rename("private_2")
    source["private_2"].create_index("second")
    source["private_2"].rename("b")
    source["b"].drop_index("first_1")
    led.until(lambda: led.settled(feed, 5), "all DDL")
    [table] = led.until(lambda: led.assigned(feed))
    assert table == uuid_of(source, "b").hex()
    assert led.copied(feed, table)
    records = led.ddls(feed)
    assert [record.event.type for record in records] == ["create", "createIndexes", "drop", "rename", "dropIndexes"]
    entered = records[3].event.description.decode()
    assert sorted(index["name"] for index in entered["indexes"]) == ["_id_", "first_1", "second_1"]


def test_an_ignored_ddl_is_known_and_not_sent(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    rule = {"tables": [f"{database}.orders"], "ignore": ["createIndexes"]}
    feed = led.create("ignored", database, filter={"tables": [f"{database}.*"], "events": [rule]})
    led.until(lambda: led.began(feed))
    source.create_collection("orders")
    source["orders"].create_index("code", unique=True)
    source["orders"].rename("bills")
    led.until(lambda: led.settled(feed, 3))
    assert [record.state for record in led.ddls(feed)] == [DdlState.DONE, DdlState.SKIPPED, DdlState.DONE]
    assert list(target["bills"].index_information()) == ["_id_"]


def test_a_filtered_out_table_holds_up_nothing(led: Cluster, fresh_database: Callable[[], str]) -> None:
    database, elsewhere = fresh_database(), fresh_database()
    feed = led.create("outside", database)
    led.until(lambda: led.began(feed))
    led.source[elsewhere].create_collection("foreign")
    led.source[elsewhere]["foreign"].drop()
    led.source[database].create_collection("orders")
    led.until(lambda: led.settled(feed, 1))
    assert [str(record.event.table) for record in led.ddls(feed)] == [f"{database}.orders"]


def test_a_plain_index_build_holds_no_table(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("async", database)
    led.until(lambda: led.began(feed))
    source.create_collection("orders")
    led.until(lambda: led.settled(feed, 1))
    held_before = led.barriers_held(feed)
    source["orders"].create_index("customer")
    led.until(lambda: led.settled(feed, 2))
    assert "customer_1" in target["orders"].index_information()
    assert led.barriers_held(feed) == held_before
