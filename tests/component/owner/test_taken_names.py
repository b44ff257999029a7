"""A later create or rename brings a table under the name of another: it stops with the reason, and the other one goes on."""

from __future__ import annotations

from collections.abc import Callable

from changefeed.lifecycle import State
from changefeed.records.requests import ChangefeedId, TableVerb
from tests.component.owner.conftest import Cluster
from tests.component.owner.tables.test_filter_change import id_of


def joined(led: Cluster, one: str, two: str) -> ChangefeedId:
    """`one` is routed to the names of `two`."""
    feed = led.create(
        f"taken-{one}",
        one,
        two,
        filter={"tables": [f"{one}.*", f"{two}.*"]},
        routes=[{"from": f"{one}.*", "to": f"{two}.*"}],
    )
    led.until(lambda: led.began(feed))
    return feed


def has_table(led: Cluster, database: str, *names: str) -> bool:
    return set(names) <= set(led.target[database].list_collection_names())


def indexes(led: Cluster, database: str, name: str) -> set[str]:
    return set(led.target[database][name].index_information())


def test_a_create_under_a_taken_name_stops_its_table_alone(led: Cluster, fresh_database: Callable[[], str]) -> None:
    one, two = fresh_database(), fresh_database()
    feed = joined(led, one, two)
    led.source[two].create_collection("a")
    led.until(lambda: led.settled(feed, 1) and has_table(led, two, "a"))
    led.source[one].create_collection("a")
    led.until(lambda: led.refusal(feed))
    assert f"name_taken: create {one}.a" in led.refusal(feed)
    assert f"would be {two}.a at the target, as {two}.a is already" in led.refusal(feed)

    led.source[one]["a"].create_index("of_one")
    led.source[two]["a"].create_index("of_two", unique=True)
    led.until(lambda: "of_two_1" in indexes(led, two, "a"), "the other table goes on")
    led.passes_now(feed)
    assert id_of(led.source[two], "a") in led.assigned(feed)
    assert id_of(led.source[one], "a") not in led.assigned(feed)
    led.ask(feed, id_of(led.source[one], "a"), TableVerb.RESUME)
    led.until(lambda: not led.etcd.range(led.layout.requests(feed)).items, "the request is answered")
    assert led.refusal(feed)

    led.source[one]["a"].drop()
    led.until(lambda: led.settled(feed, 4), "all DDL but the index of the table that ended, which nobody recorded")
    led.passes_now(feed)
    led.until(lambda: not led.stragglers(feed))
    assert indexes(led, two, "a") == {"_id_", "of_two_1"}, "nothing of it came to the target"


def test_a_rename_to_a_taken_name_stops_its_table_and_its_end_drops_what_it_was(
    led: Cluster, fresh_database: Callable[[], str]
) -> None:
    one, two = fresh_database(), fresh_database()
    feed = joined(led, one, two)
    led.source[two].create_collection("a")
    led.source[one].create_collection("b")
    led.until(lambda: led.settled(feed, 2) and has_table(led, two, "a", "b"))
    renamed = id_of(led.source[one], "b")
    led.source[one]["b"].rename("a")
    led.until(lambda: led.stragglers(feed).get(renamed), "it stops")
    found = led.stragglers(feed)[renamed]
    assert (found.stopped, found.error and found.error.code) == (True, "name_taken")
    led.source[two]["a"].create_index("of_two", unique=True)
    led.until(lambda: "of_two_1" in indexes(led, two, "a"), "the other table goes on")
    assert has_table(led, two, "b")

    led.source[one]["a"].drop()
    led.until(lambda: led.settled(feed, 5))
    assert led.target[two].list_collection_names() == ["a"]
    assert indexes(led, two, "a") == {"_id_", "of_two_1"}


def test_a_database_dropped_with_a_table_without_a_name_leaves_the_other_table(
    led: Cluster, fresh_database: Callable[[], str]
) -> None:
    one, two = fresh_database(), fresh_database()
    feed = joined(led, one, two)
    led.source[two].create_collection("a")
    led.source[one].create_collection("b")
    led.until(lambda: led.settled(feed, 2))
    led.source[one].create_collection("a")
    led.source[one].create_collection("view", viewOn="b")
    led.until(lambda: led.refusal(feed))
    led.source.drop_database(one)
    led.until(lambda: led.settled(feed, 6))
    assert set(led.target[two].list_collection_names()) - {"system.views"} == {"a"}


def test_a_swap_of_the_names_at_the_source_is_no_conflict(led: Cluster, fresh_database: Callable[[], str]) -> None:
    one, two = fresh_database(), fresh_database()
    feed = joined(led, one, two)
    led.source[two].create_collection("a")
    led.source[two]["a"].drop()
    led.source[one].create_collection("a")
    led.source[one]["a"].create_index("x", unique=True)
    led.until(lambda: led.settled(feed, 4))
    assert "x_1" in indexes(led, two, "a")


def test_a_changefeed_does_not_begin_with_tables_under_one_name(
    led: Cluster, fresh_database: Callable[[], str]
) -> None:
    """The admin API refuses such a changefeed; the second table may be created just after its check."""
    one, two = fresh_database(), fresh_database()
    for database in (one, two):
        led.source[database].create_collection("a")
    rules = [{"from": f"{one}.*", "to": f"{two}.*"}]
    feed = led.create(f"merged-{one}", one, two, filter={"tables": [f"{one}.*", f"{two}.*"]}, routes=rules)
    led.until(lambda: led.state(feed) is State.FAILED)
    assert f"would all be {two}.a at the target" in led.error(feed)
    led.source[one]["a"].drop()
    led.change(feed, routes=rules)
    led.until(lambda: led.began(feed))
