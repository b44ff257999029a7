"""The user pauses a changefeed, changes its filter, and resumes it."""

from __future__ import annotations

import pytest
from pymongo.database import Database

from changefeed.lifecycle import State
from changefeed.records.requests import ChangefeedId, DesiredState
from changefeed.table import TableId
from tests.component.owner.conftest import Cluster


def update(cluster: Cluster, id: ChangefeedId, *tables: str) -> None:
    """Does what `sluice changefeed pause`, `update` and `resume` do."""
    cluster.change(id, DesiredState.PAUSED)
    cluster.until(lambda: cluster.obeyed(id))
    cluster.change(id, DesiredState.PAUSED, filter={"tables": list(tables)})
    cluster.until(lambda: cluster.obeyed(id))
    cluster.change(id)
    cluster.until(lambda: cluster.obeyed(id))


def id_of(database: Database[dict[str, object]], name: str) -> TableId:
    [found] = database.list_collections(filter={"name": name})
    return TableId(found["info"]["uuid"].hex())


def view_of(database: Database[dict[str, object]]) -> object:
    [found] = database.list_collections(filter={"name": "view"})
    return found["options"]


def test_views_are_made_where_tables_are_copied(led: Cluster, database: str) -> None:
    led.source[database].create_collection("view", viewOn="orders", pipeline=[{"$match": {"open": True}}])
    copied = led.create("with-view", database, start="initial")
    led.until(lambda: led.began(copied))
    assert view_of(led.target[f"{database}_to"]) == {"viewOn": "orders", "pipeline": [{"$match": {"open": True}}]}


def test_a_table_that_a_wider_filter_takes_in_is_copied_and_the_others_are_not(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    source.create_collection("view", viewOn="notes")
    feed = led.create("wider", database, filter={"tables": [f"{database}.orders"]})
    led.until(lambda: led.began(feed))
    source.create_collection("notes")
    source.create_collection("orders")
    led.until(lambda: led.settled(feed, 1), "the checkpoint behind both")
    update(led, feed, f"{database}.*")
    orders, notes = id_of(source, "orders"), id_of(source, "notes")
    led.until(lambda: led.assigned(feed).keys() == {orders, notes})
    assert led.state(feed) is State.NORMAL
    assert led.copied(feed, notes)
    assert not led.copied(feed, orders)
    target.create_collection("notes")  # as a copy does
    assert view_of(target) == {"viewOn": "notes", "pipeline": []}
    source["notes"].create_index("code", unique=True)
    led.until(
        lambda: led.settled(feed, 1) and led.ddls(feed)[-1].event.id == notes, "the next DDL of the table taken in"
    )


def test_an_owner_that_dies_half_way_is_followed_by_one_that_does_it_all(cluster: Cluster, database: str) -> None:
    source = cluster.source[database]
    for table in ("orders", "notes", "old"):
        source.create_collection(table)
    feed = cluster.create("half", database, filter={"tables": [f"{database}.orders", f"{database}.old"]})
    with cluster.processor():
        cluster.start_owner("o1", failpoints="tables_changing=kill")
        cluster.stand()
        cluster.start_owner("o2")
        cluster.stand()
        cluster.until(lambda: len(cluster.assigned(feed)) == 2)
        cluster.change(feed, DesiredState.PAUSED, filter={"tables": [f"{database}.orders", f"{database}.notes"]})
        cluster.until(lambda: cluster.obeyed(feed))
        cluster.change(feed)
        cluster.died("o1")
        cluster.revoke_lease("o1")
        wanted = {id_of(source, "orders"), id_of(source, "notes")}
        cluster.until(lambda: cluster.obeyed(feed) and cluster.assigned(feed).keys() == wanted)
        assert cluster.copied(feed, id_of(source, "notes"))
        assert not cluster.copied(feed, id_of(source, "orders"))


def test_ddl_while_paused_finds_the_tables_that_are_taken_in(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    source.create_collection("notes")
    feed = led.create("asleep-wider", database, filter={"tables": [f"{database}.orders"]})
    led.until(lambda: led.began(feed))
    led.change(feed, DesiredState.PAUSED)
    led.until(lambda: led.state(feed) is State.STOPPED)
    source["notes"].create_index("code")
    source["notes"].rename("letters")
    source.create_collection("new")
    target.create_collection("notes")  # as a copy does
    update(led, feed, f"{database}.*")
    led.until(lambda: led.settled(feed, 3), "all DDL since")
    assert led.copied(feed, id_of(source, "letters"))
    assert not led.copied(feed, id_of(source, "new"))
    assert "new" in target.list_collection_names()


def test_a_table_that_is_taken_out_stays_at_the_target_as_it_is(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("narrower", database)
    led.until(lambda: led.began(feed))
    source.create_collection("orders")
    source.create_collection("notes")
    led.until(lambda: led.settled(feed, 2))
    update(led, feed, f"{database}.*", f"!{database}.notes")
    orders, notes = id_of(source, "orders"), id_of(source, "notes")
    led.until(lambda: led.assigned(feed).keys() == {orders})
    source["notes"].drop()
    source["orders"].create_index("code", unique=True)
    led.until(lambda: led.settled(feed, 1))
    assert sorted(target.list_collection_names()) == ["notes", "orders"]
    update(led, feed, f"{database}.*")
    assert notes not in led.assigned(feed)


def test_a_table_whose_ddl_the_target_refuses_may_be_taken_out(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("refused-out", database)
    led.until(lambda: led.began(feed))
    target.create_collection("notes", capped=True, size=4096)
    source.create_collection("notes")
    led.until(lambda: led.refusal(feed))
    led.change(feed, DesiredState.PAUSED)
    led.until(lambda: led.obeyed(feed))
    led.change(feed, DesiredState.PAUSED, filter={"tables": [f"{database}.*", f"!{database}.notes"]})
    led.until(lambda: led.obeyed(feed))
    led.change(feed)
    led.until(lambda: led.state(feed) is State.NORMAL)
    source.create_collection("orders")
    led.until(lambda: led.settled(feed, 1) and "orders" in target.list_collection_names())


@pytest.mark.parametrize("paused", [True, False], ids=["paused", "running"])
def test_tables_change_when_the_target_has_the_open_ddls_of_those_that_stay(
    led: Cluster, database: str, paused: bool
) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("blocked", database)
    led.until(lambda: led.began(feed))
    target.create_collection("orders", capped=True, size=4096)
    source.create_collection("orders")
    led.until(lambda: led.refusal(feed))
    if paused:
        led.change(feed, DesiredState.PAUSED)
        led.until(lambda: led.obeyed(feed))
    before = led.status(feed)
    led.change(feed, filter={"tables": [f"{database}.orders"]})
    led.until(lambda: "update_waits: filter.tables: create" in led.error(feed))
    source.create_collection("notes")
    led.until(lambda: "notes" in target.list_collection_names(), "what is there goes on")
    status = led.status(feed)
    assert status is not None
    assert before is not None
    assert status.tables == before.tables
    target["orders"].drop()
    led.resume_refused(feed)
    led.until(lambda: led.state(feed) is State.NORMAL)
    led.until(lambda: (status := led.status(feed)) is not None and status.tables != before.tables)
    source["notes"].create_index("after")
    source["orders"].create_index("after")
    led.until(lambda: "after_1" in target["orders"].index_information())
    assert list(target["notes"].index_information()) == ["_id_"]
