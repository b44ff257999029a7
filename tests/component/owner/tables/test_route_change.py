"""The user pauses a changefeed, changes its routes, and resumes it: the target's tables are renamed, or copied anew to the new names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from changefeed.lifecycle import State
from changefeed.records.requests import ChangefeedId, DesiredState, Reroute
from tests.component.owner.conftest import Cluster
from tests.component.owner.tables.test_filter_change import id_of, view_of

Rules = Sequence[tuple[str, str]]


def rerouted(cluster: Cluster, id: ChangefeedId, reroute: Reroute | None, rules: Rules, **more: Any) -> None:
    """Does what `sluice changefeed pause`, `update --routes` and `resume` do."""
    cluster.change(id, DesiredState.PAUSED)
    cluster.until(lambda: cluster.obeyed(id))
    routes = [{"from": taken, "to": given} for taken, given in rules]
    cluster.change(id, DesiredState.PAUSED, reroute=reroute, routes=routes, **more)
    cluster.until(lambda: cluster.obeyed(id))
    cluster.change(id, reroute=reroute)


def rows(cluster: Cluster, database: str) -> Mapping[str, list[Any]]:
    tables = cluster.target[database].list_collections(filter={"type": "collection"})
    names = [each["name"] for each in tables if not each["name"].startswith("system.")]
    return {name: sorted(row["_id"] for row in cluster.target[database][name].find()) for name in sorted(names)}


def replicated(cluster: Cluster, database: str, *tables: str) -> ChangefeedId:
    """With a row in each of the target's tables, which is named after the table."""
    feed = cluster.create(f"routes-{database}", database)
    cluster.until(lambda: cluster.began(feed))
    for table in tables:
        cluster.source[database].create_collection(table)
    cluster.until(lambda: cluster.settled(feed, len(tables)) and len(cluster.assigned(feed)) == len(tables))
    for table in tables:
        cluster.target[f"{database}_to"][table].insert_one({"_id": table})
    return feed


def test_tables_are_renamed_with_their_rows_and_go_on(led: Cluster, database: str) -> None:
    feed = replicated(led, database, "a", "b")
    before = led.assigned(feed)
    rerouted(led, feed, Reroute.RENAME, [(f"{database}.*", f"{database}_to.new_*")])
    led.until(lambda: led.obeyed(feed))
    assert led.state(feed) is State.NORMAL
    assert rows(led, f"{database}_to") == {"new_a": ["a"], "new_b": ["b"]}
    assert led.assigned(feed) == before
    assert not any(led.copied(feed, table) for table in before)
    led.source[database]["a"].create_index("x", unique=True)
    led.source[database]["b"].rename("c")
    led.until(lambda: led.settled(feed, 2))
    assert rows(led, f"{database}_to") == {"new_a": ["a"], "new_c": ["b"]}
    assert "x_1" in led.target[f"{database}_to"]["new_a"].index_information()
    assert not led.etcd.range(led.layout.renames(feed)).items


def test_a_table_is_renamed_after_the_one_that_has_its_new_name(led: Cluster, database: str) -> None:
    feed = replicated(led, database, "a", "b", "c")
    to = f"{database}_to"
    rules = [(f"{database}.a", f"{to}.b"), (f"{database}.b", f"{to}.c"), (f"{database}.c", f"{to}.d")]
    rerouted(led, feed, Reroute.RENAME, rules)
    led.until(lambda: led.obeyed(feed) and led.state(feed) is State.NORMAL)
    assert rows(led, to) == {"b": ["a"], "c": ["b"], "d": ["c"]}


def test_a_copy_leaves_the_old_table_and_begins_with_the_new_one(led: Cluster, database: str) -> None:
    feed = replicated(led, database, "a", "b")
    a, b = (id_of(led.source[database], name) for name in "ab")
    to = f"{database}_to"
    rerouted(led, feed, Reroute.COPY, [(f"{database}.a", f"{to}.new"), (f"{database}.*", f"{to}.*")])
    led.until(lambda: led.obeyed(feed) and led.state(feed) is State.NORMAL)
    led.until(lambda: led.assigned(feed).keys() == {a, b})
    assert (led.copied(feed, a), led.copied(feed, b)) == (True, False)
    assert rows(led, to) == {"a": ["a"], "b": ["b"]}, "a scripted processor copies no rows"


def test_changed_routes_without_a_word_about_the_tables_fail_and_say_what_to_write(led: Cluster, database: str) -> None:
    """The admin API refuses such a change; this test bypasses the API."""
    feed = replicated(led, database, "a")
    rerouted(led, feed, None, [(f"{database}.*", f"{database}_to.new_*")])
    led.until(lambda: led.state(feed) is State.FAILED)
    assert f"{database}_to.a becomes {database}_to.new_a" in led.error(feed)
    assert rows(led, f"{database}_to") == {"a": ["a"]}
    led.change(feed, routes=[{"from": f"{database}.*", "to": f"{database}_to.*"}])
    led.until(lambda: led.obeyed(feed) and led.state(feed) is State.NORMAL)


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ([("a", "b"), ("b", "a")], "exchange their names"),
        ([("?", "all")], "would come into one table"),
    ],
)
def test_names_that_cannot_be_changed_by_renames_are_left_as_they_are(
    led: Cluster, database: str, rules: Rules, told: str
) -> None:
    """The admin API refuses such a change; this test bypasses the API."""
    feed, to = replicated(led, database, "a", "b"), f"{database}_to"
    rerouted(led, feed, Reroute.RENAME, [(f"{database}.{old}", f"{to}.{new}") for old, new in rules])
    led.until(lambda: led.state(feed) is State.FAILED)
    assert told in led.error(feed)
    assert rows(led, to) == {"a": ["a"], "b": ["b"]}


def test_routes_for_tables_that_come_later_change_no_table(led: Cluster, database: str) -> None:
    feed = replicated(led, database, "a")
    to = f"{database}_to"
    rerouted(led, feed, None, [(f"{database}.later", f"{to}.other"), (f"{database}.*", f"{to}.*")])
    led.until(lambda: led.obeyed(feed) and led.state(feed) is State.NORMAL)
    led.source[database].create_collection("later")
    led.until(lambda: led.settled(feed, 1))
    assert sorted(rows(led, to)) == ["a", "other"]


def test_a_name_that_the_target_has_already_is_not_renamed_onto(led: Cluster, database: str) -> None:
    feed = replicated(led, database, "a", "b")
    to = f"{database}_to"
    led.target[to]["new_b"].insert_one({"_id": "foreign"})
    rerouted(led, feed, Reroute.RENAME, [(f"{database}.*", f"{to}.new_*")])
    led.until(lambda: led.state(feed) is State.FAILED)
    assert f"{to}.new_b exists at the target" in led.error(feed)
    assert rows(led, to)["new_b"] == ["foreign"]
    led.target[to]["new_b"].drop()
    led.change(feed, reroute=Reroute.RENAME)
    led.until(lambda: led.state(feed) is State.NORMAL)
    assert rows(led, to) == {"new_a": ["a"], "new_b": ["b"]}


def test_another_change_after_half_of_the_renames_finds_each_table_where_it_is(led: Cluster, database: str) -> None:
    feed = replicated(led, database, "a", "b")
    to = f"{database}_to"
    led.target[to]["new_b"].insert_one({"_id": "foreign"})
    rerouted(led, feed, Reroute.RENAME, [(f"{database}.*", f"{to}.new_*")])
    led.until(lambda: led.state(feed) is State.FAILED)
    led.change(feed, reroute=Reroute.RENAME, routes=[{"from": f"{database}.*", "to": f"{to}.other_*"}])
    led.until(lambda: led.state(feed) is State.NORMAL)
    assert rows(led, to) == {"new_b": ["foreign"], "other_a": ["a"], "other_b": ["b"]}
    assert not led.etcd.range(led.layout.renames(feed)).items


def test_views_read_the_tables_under_their_new_names(led: Cluster, database: str) -> None:
    feed = replicated(led, database, "a")
    to = f"{database}_to"
    led.source[database].create_collection("view", viewOn="a")
    led.until(lambda: led.settled(feed, 2))
    rerouted(led, feed, Reroute.RENAME, [(f"{database}.a", f"{to}.new"), (f"{database}.*", f"{to}.*")])
    led.until(lambda: led.obeyed(feed) and led.state(feed) is State.NORMAL)
    assert view_of(led.target[to]) == {"viewOn": "new", "pipeline": []}


@pytest.mark.parametrize(
    "point",
    ["target_renames_recorded", "target_renamed/b", "target_renamed/a", "target_renames_done", "tables_changed"],
)
@pytest.mark.parametrize("reroute", [Reroute.RENAME, Reroute.COPY])
def test_an_owner_that_dies_half_way_is_followed_by_one_that_does_the_rest(
    cluster: Cluster, database: str, point: str, reroute: Reroute
) -> None:
    if reroute is Reroute.COPY and point != "tables_changed":
        return
    to = f"{database}_to"
    with cluster.processor():
        cluster.start_owner("o1", failpoints=f"{point}=kill")
        cluster.stand()
        cluster.start_owner("o2")
        cluster.stand()
        feed = replicated(cluster, database, "a", "b")
        tables = cluster.assigned(feed).keys()
        rerouted(cluster, feed, reroute, [(f"{database}.a", f"{to}.b"), (f"{database}.b", f"{to}.c")])
        cluster.died("o1")
        cluster.revoke_lease("o1")
        cluster.until(lambda: cluster.obeyed(feed) and cluster.state(feed) is State.NORMAL, cluster.error(feed))
        wanted = {"b": ["a"], "c": ["b"]} if reroute is Reroute.RENAME else {"a": ["a"], "b": ["b"]}
        assert rows(cluster, to) == wanted
        cluster.until(lambda: cluster.assigned(feed).keys() == tables)
        assert {cluster.copied(feed, table) for table in tables} == {reroute is Reroute.COPY}
        cluster.source[database]["a"].create_index("x", unique=True)
        if reroute is Reroute.RENAME:
            cluster.until(lambda: "x_1" in cluster.target[to]["b"].index_information())


def test_a_table_without_a_name_is_copied_at_a_resume_once_the_name_is_free(
    led: Cluster, fresh_database: Callable[[], str]
) -> None:
    one, two = fresh_database(), fresh_database()
    feed = led.create(
        f"free-{one}",
        one,
        two,
        filter={"tables": [f"{one}.*", f"{two}.*"]},
        routes=[{"from": f"{one}.*", "to": f"{two}.*"}],
    )
    led.until(lambda: led.began(feed))
    for name in ("a", "b"):
        led.source[two].create_collection(name)
        led.source[one].create_collection(f"was_{name}")
    led.until(lambda: led.settled(feed, 4))
    led.source[one].create_collection("a")
    led.source[one]["was_b"].rename("b")
    a, b = id_of(led.source[one], "a"), id_of(led.source[one], "b")
    led.until(lambda: b in led.stragglers(feed))
    led.source[two]["a"].drop()
    led.source[two]["b"].drop()
    led.until(lambda: len(led.ddls(feed)) == 8 and sum(record.open for record in led.ddls(feed)) == 2)
    led.change(feed, DesiredState.PAUSED)
    led.until(lambda: led.obeyed(feed))
    led.change(feed)
    led.until(lambda: led.obeyed(feed) and led.settled(feed, 0))
    led.until(lambda: {a, b} <= led.assigned(feed).keys())
    assert led.copied(feed, a)
    assert led.copied(feed, b)
    assert not led.stragglers(feed)


def test_other_routes_give_a_table_without_a_name_one(led: Cluster, fresh_database: Callable[[], str]) -> None:
    one, two = fresh_database(), fresh_database()
    tables = {"tables": [f"{one}.*", f"{two}.*"]}
    feed = led.create(f"other-{one}", one, two, filter=tables, routes=[{"from": f"{one}.*", "to": f"{two}.*"}])
    led.until(lambda: led.began(feed))
    led.source[two].create_collection("a")
    led.source[one].create_collection("b")
    led.until(lambda: led.settled(feed, 2))
    led.source[one].create_collection("a")
    led.until(lambda: led.refusal(feed))
    led.change(feed, DesiredState.PAUSED)
    led.until(lambda: led.obeyed(feed))
    led.change(feed)
    led.until(lambda: led.obeyed(feed) and led.state(feed) is State.NORMAL)
    assert led.refusal(feed), "a plain resume changes nothing while the name is taken"
    rerouted(led, feed, Reroute.RENAME, [(f"{one}.*", f"{two}.one_*")])
    led.until(lambda: led.obeyed(feed) and led.state(feed) is State.NORMAL, led.error(feed))
    led.until(lambda: led.copied(feed, id_of(led.source[one], "a")))
    assert sorted(rows(led, two)) == ["a", "one_b"]
    assert not led.refusal(feed)
