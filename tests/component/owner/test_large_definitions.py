"""Definitions that pass etcd's limits, for which a server has 16 MB, reach the target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pymongo import IndexModel

from changefeed.capture import Capture
from changefeed.lifecycle import State
from changefeed.records.requests import ChangefeedId, DesiredState
from tests.component.owner.conftest import Cluster, Database
from tests.component.owner.test_ddl_kinds import options


def choice(field: str, size: int) -> dict[str, Any]:
    """A condition of about that many bytes."""
    return {field: {"$in": [f"{number:09d}" for number in range(size // 22)]}}


def above(field: str, size: int) -> dict[str, Any]:
    """A condition of about that many bytes that servers before 6.0 accept as the filter of an index, too."""
    return {field: {"$gt": "0" * size}}


def filter_of(db: Database, coll: str, index: str) -> object:
    return db[coll].index_information().get(index, {}).get("partialFilterExpression")


def large_values(led: Cluster, feed: ChangefeedId) -> int:
    return len({key.rpartition("/")[0] for key in led.etcd.keys(led.layout.large(feed))})


CAPTURES = [Capture.OPLOG, pytest.param(Capture.CHANGE_STREAM, marks=pytest.mark.since("6.0"))]


@pytest.mark.parametrize("capture", CAPTURES)
def test_large_definitions_reach_the_target(led: Cluster, database: str, capture: Capture) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create(f"large-{capture}", database, capture=capture)
    led.until(lambda: led.began(feed))
    source.create_collection("orders")
    source["orders"].create_index("a", partialFilterExpression=above("a", 1_600_000))
    source.create_collection("strict", validator=choice("b", 2_500_000))
    source.create_collection("seen", viewOn="orders", pipeline=[{"$match": choice("c", 2_500_000)}])
    source.create_collection("changed", validator=choice("d", 900_000))
    source.command("collMod", "changed", validator=choice("e", 900_000))
    source.command("collMod", "orders", validator=choice("f", 2_500_000))
    led.until(lambda: led.settled(feed, 7), "all DDLs")
    assert filter_of(target, "orders", "a_1") == above("a", 1_600_000)
    for coll in ("strict", "changed", "orders", "seen"):
        assert options(target, coll) == options(source, coll)
    assert led.state(feed) is State.NORMAL
    source["orders"].drop()
    led.until(lambda: led.settled(feed, 8))
    assert "orders" not in target.list_collection_names()


@pytest.mark.costly("because 2.4 MB of filters are read again each time the test looks")
def test_sixty_indexes_with_filters_of_40_kb_and_definitions_of_the_start(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    for db in (source, target):
        db.create_collection("strict", validator=choice("b", 2_500_000))
    feed = led.create("many", database)
    led.until(lambda: led.began(feed))
    source.create_collection("orders")
    filters = {f"f{number}": above(f"f{number}", 40_000) for number in range(60)}
    indexes = [IndexModel(name, partialFilterExpression=said) for name, said in filters.items()]
    source["orders"].insert_one({})
    source["orders"].create_indexes(indexes)
    led.until(lambda: led.settled(feed, 2), "one DDL of all of them")
    source["orders"].create_index("more")
    led.until(lambda: led.settled(feed, 3), "one more, beside those that were seen before it")
    assert {name: filter_of(target, "orders", f"{name}_1") for name in filters} == filters
    source.command("collMod", "strict", validator={"x": 1})
    led.until(lambda: led.settled(feed, 4), "a change of a table of the start")
    assert led.state(feed) is State.NORMAL
    led.change(feed, DesiredState.REMOVED)
    led.until(lambda: not led.exists(feed))
    for db in (source, target):
        for name in filters:
            db["orders"].drop_index(
                f"{name}_1"
            )  # their drop in one transaction would be too large for the server's cache


def test_what_nothing_refers_to_any_more_is_deleted(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("collected", database)
    led.until(lambda: led.began(feed))
    source.create_collection("strict", validator=choice("b", 200_000))
    led.until(lambda: led.settled(feed, 1))
    assert large_values(led, feed) == 1
    source.command("collMod", "strict", validator=choice("c", 200_000))
    led.until(lambda: led.settled(feed, 2) and large_values(led, feed) == 2, "what was seen before is deleted")
    source.command("collMod", "strict", validator={"x": 1})
    led.until(lambda: led.settled(feed, 3) and large_values(led, feed) == 2)
    assert options(target, "strict") == options(source, "strict")
    led.change(feed, DesiredState.REMOVED)
    led.until(lambda: not led.exists(feed) and large_values(led, feed) == 0, "all of it is removed")


@pytest.mark.parametrize(
    "point", ["large_value_written", "ddl_recorded/modify", "ddl_observed/modify", "ddl_released/modify"]
)
def test_a_large_change_is_done_once_after_its_owner_was_killed(
    cluster: Cluster, fresh_database: Callable[[], str], point: str
) -> None:
    database = fresh_database()
    cluster.start_owner("first", failpoints=f"{point}=kill")
    cluster.stand()
    cluster.start_owner("last")
    source, target = cluster.source[database], cluster.target[f"{database}_to"]
    source.create_collection("strict")
    feed = cluster.create("f", database)
    with cluster.processor():
        cluster.until(lambda: cluster.began(feed))
        target.create_collection("strict", validator=choice("a", 900_000))
        source.command("collMod", "strict", validator=choice("b", 2_500_000))
        cluster.died("first")
        cluster.revoke_lease("first")
        cluster.until(lambda: cluster.settled(feed, 1), "the DDL")
        assert options(target, "strict") == options(source, "strict")
        cluster.until(lambda: large_values(cluster, feed) == 1, "what was seen before is deleted")
        assert cluster.state(feed) is State.NORMAL
