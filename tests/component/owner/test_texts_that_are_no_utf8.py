"""Servers take texts that are no UTF-8, in names and definitions: a table that has one stands still, and no other."""

from __future__ import annotations

import pytest

from changefeed.capture import Capture
from changefeed.lifecycle import State
from tests.component.owner.conftest import Cluster
from tests.component.owner.tables.test_filter_change import id_of
from tests.component.source.odd_texts import no_utf8


@pytest.mark.parametrize(
    "capture", [Capture.OPLOG, pytest.param(Capture.CHANGE_STREAM, marks=pytest.mark.since("6.0"))]
)
def test_a_table_with_a_text_that_is_no_utf8_stands_still_alone(led: Cluster, database: str, capture: Capture) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create(f"no-utf8-{database}", database, capture=capture)
    led.until(lambda: led.began(feed))
    source.create_collection("orders")
    source.create_collection("strict")
    led.until(lambda: led.settled(feed, 2) and len(led.assigned(feed)) == 2)
    strict = id_of(source, "strict")
    source.command("collMod", "strict", validator=no_utf8({"a": {"$ne": "caf?"}}))
    led.until(lambda: led.stragglers(feed).keys() == {strict}, "strict stands still")
    assert f"modify {database}.strict" in led.refusal(feed) or "leave them out" in led.refusal(feed)
    named = {"op": "c", "ns": f"{database}.$cmd", "o": no_utf8({"create": "caf?"})}
    led.source.admin.command("applyOps", [named, {"op": "c", "ns": f"{database}.$cmd", "o": {"create": "more"}}])
    source.create_collection("seen", viewOn="orders", pipeline=[no_utf8({"$match": {"a": "caf?"}})])
    with led.source.start_session() as session, session.start_transaction():
        source.create_collection("items", session=session)
        source["items"].insert_one({"_id": 1, "text": no_utf8({"a": "caf?"})}, session=session)
    source["orders"].create_index("code", unique=True)
    led.until(lambda: "code_1" in target["orders"].index_information(), "orders goes on")
    led.passes_now(feed)
    assert {"items", "more", "orders", "strict"} == set(target.list_collection_names())
    assert led.state(feed) is State.NORMAL
    source.command("dropDatabase")
