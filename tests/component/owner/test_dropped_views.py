"""`db.system.views.drop()`, which MongoDB's manual advises for broken views, drops all views of a database at once."""

from __future__ import annotations

import pytest

from changefeed.capture import Capture
from changefeed.lifecycle import State
from tests.component.owner.conftest import Cluster, Database
from tests.component.owner.tables.test_filter_change import id_of
from tests.component.owner.test_ddl_kinds import options

_OPEN = [{"$match": {"open": True}}]
_CLOSED = [{"$match": {"open": False}}]


def test_the_views_are_dropped_at_the_target_and_their_names_are_free(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("views-dropped", database)
    led.until(lambda: led.began(feed))
    source.create_collection("orders")
    source.create_collection("open", viewOn="orders", pipeline=_OPEN)
    source.create_collection("closed", viewOn="orders", pipeline=_CLOSED)
    led.until(lambda: led.settled(feed, 3))
    assert {"open", "closed"} <= names_in(target)
    source.command("drop", "system.views")
    led.until(lambda: led.settled(feed, 5), "both views are dropped")
    assert names_in(target) == {"orders"}
    source.create_collection("open")
    source.create_collection("closed", viewOn="orders", pipeline=_OPEN)
    led.until(lambda: led.settled(feed, 7), "both names are taken again")
    led.passes_now(feed)
    assert options(target, "open") == {}
    assert options(target, "closed") == {"viewOn": "orders", "pipeline": _OPEN}
    assert led.state(feed) is State.NORMAL


@pytest.mark.since("6.0")
def test_a_stream_does_not_show_it_so_a_view_goes_when_its_name_is_taken(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("views-streamed", database, capture=Capture.CHANGE_STREAM)
    led.until(lambda: led.began(feed))
    source.create_collection("orders")
    for view in ("open", "closed", "other"):
        source.create_collection(view, viewOn="orders", pipeline=_OPEN)
    led.until(lambda: led.settled(feed, 4))
    source.command("drop", "system.views")
    source.create_collection("open")
    source.create_collection("closed", viewOn="orders", pipeline=_CLOSED)
    source["orders"].rename("other")
    led.until(lambda: led.settled(feed, 10), "each of the three names is taken again")
    led.passes_now(feed)
    assert names_in(target) - {"system.views"} == {"open", "closed", "other"}
    assert options(target, "open") == options(target, "other") == {}
    assert options(target, "closed") == {"viewOn": "orders", "pipeline": _CLOSED}
    assert led.state(feed) is State.NORMAL


def names_in(db: Database) -> set[str]:
    return set(db.list_collection_names()) - {"system.views"}


def test_a_view_under_the_name_of_a_table_stops_that_table_alone(led: Cluster, database: str) -> None:
    """A server refuses such a view, but not when it is written by hand."""
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("views-by-hand", database)
    led.until(lambda: led.began(feed))
    source.create_collection("orders")
    source.create_collection("items")
    source.create_collection("seen", viewOn="orders", pipeline=[])
    led.until(lambda: led.settled(feed, 3) and len(led.assigned(feed)) == 2)
    orders = id_of(source, "orders")
    definition = {"_id": f"{database}.orders", "viewOn": "items", "pipeline": []}
    by_hand = {"op": "i", "ns": f"{database}.system.views", "o": definition}
    logged_apart = {"op": "c", "ns": f"{database}.$cmd", "o": {"create": "more"}}
    led.source.admin.command("applyOps", [logged_apart, by_hand])
    led.until(lambda: led.stragglers(feed).keys() == {orders}, "orders stands still")
    assert "expected neither this id nor this name to exist" in led.refusal(feed)
    source.command("drop", "system.views")
    source["items"].create_index("code", unique=True)
    led.passes_now(feed)
    assert "code_1" in target["items"].index_information()
    assert "seen" not in names_in(target)
    assert led.state(feed) is State.NORMAL
