"""The target refuses a DDL for its own reasons: the DDL holds what it touches and nothing else, and is done once the reason is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from devstack.mongodb.server import TESTING, Client, MongoDB
from tests.component.owner.conftest import Cluster
from tests.component.owner.tables.test_filter_change import id_of
from tests.component.owner.test_ddl_kinds import options

_ILLEGAL_OPERATION = 20


class OwnTarget(NamedTuple):
    uri: str
    client: Client


@pytest.fixture(scope="module")
def own_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnTarget]:
    """A target whose settings only the tests of this module see."""
    directory = tmp_path_factory.mktemp("own-target")
    server = MongoDB("own", directory / "data", directory / "log", parameters=TESTING)
    with server, Client(server.uri) as client:
        yield OwnTarget(server.uri, client)


def test_a_refused_validator_holds_its_table_alone_and_is_set_after_a_resume(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("validator", database)
    led.until(lambda: led.began(feed))
    source.create_collection("orders")
    source.create_collection("items")
    led.until(lambda: led.settled(feed, 2) and len(led.assigned(feed)) == 2)
    orders = id_of(source, "orders")
    target["orders"].drop()
    target.create_collection("orders", viewOn="items", pipeline=[])
    source.command("collMod", "orders", validator={"total": {"$gte": 0}})
    led.until(lambda: orders in led.stragglers(feed))
    assert "option not supported on a view: validator" in led.refusal(feed)
    for remedy in ("sluice table resume", "sluice ddl skip", "sluice table recopy"):
        assert remedy in led.refusal(feed)
    source["items"].create_index("code", unique=True)
    led.passes_now(feed)
    assert "code_1" in target["items"].index_information()
    assert led.held(feed).keys() == {orders}
    target["orders"].drop()
    target.create_collection("orders")
    led.resume_refused(feed)
    led.until(lambda: led.settled(feed, 4) and not led.stragglers(feed))
    assert options(target, "orders") == options(source, "orders")


@pytest.mark.since("6.0")
def test_a_create_with_an_option_that_the_target_does_not_know_waits_until_the_target_is_upgraded(
    led: Cluster, own_target: OwnTarget, database: str
) -> None:
    source, target = led.source[database], own_target.client[f"{database}_to"]
    own_target.client.admin.command("setFeatureCompatibilityVersion", "5.0")
    feed = led.create("older", database, sink=own_target.uri)
    led.until(lambda: led.began(feed))
    source.create_collection("orders", changeStreamPreAndPostImages={"enabled": True})
    led.until(lambda: led.refusal(feed))
    assert "'changeStreamPreAndPostImages' is an unknown field" in led.refusal(feed)
    for remedy in ("sluice table resume", "sluice table recopy"):
        assert remedy in led.refusal(feed)
    source.create_collection("items")
    source["items"].create_index("code", unique=True)
    led.passes_now(feed)
    assert "code_1" in target["items"].index_information()
    led.until(lambda: led.assigned(feed).keys() == {id_of(source, "items")}, "no rows for a table that is not there")
    assert target.list_collection_names() == ["items"]
    own_target.client.admin.command("setFeatureCompatibilityVersion", "6.0")
    led.resume_refused(feed)
    led.until(lambda: led.settled(feed, 3) and len(led.assigned(feed)) == 2)
    assert options(target, "orders") == {"changeStreamPreAndPostImages": {"enabled": True}}


@pytest.mark.parametrize("refused", ["orders", "seen"])
def test_a_refused_drop_in_a_dropped_database_holds_its_table_and_no_other(
    led: Cluster, own_target: OwnTarget, fresh_database: Callable[[], str], refused: str
) -> None:
    """The source logs the drops of its tables and of all its views, and then that of the database, of which nothing is left."""
    one, two = fresh_database(), fresh_database()
    source, target = led.source[one], own_target.client[f"{one}_to"]

    def present() -> list[str]:
        return sorted(set(target.list_collection_names()) - {"system.views"})

    feed = led.create(f"drop-of-{refused}", one, two, sink=own_target.uri)
    led.until(lambda: led.began(feed))
    source.create_collection("orders")
    source.create_collection("seen", viewOn="orders", pipeline=[])
    led.source[two].create_collection("items")
    led.until(lambda: led.settled(feed, 3) and len(led.assigned(feed)) == 2)
    dropped = id_of(source, "orders")
    refusing = {"failCommands": ["drop"], "errorCode": _ILLEGAL_OPERATION, "namespace": f"{one}_to.{refused}"}
    own_target.client.admin.command("configureFailPoint", "failCommand", mode="alwaysOn", data=refusing)
    led.source.drop_database(one)
    led.until(lambda: led.refusal(feed))
    assert f"ddl_refused: drop on {one}_to.{refused}: the target answers:" in led.refusal(feed)
    source.create_collection("new")
    led.source[two]["items"].create_index("code", unique=True)
    led.passes_now(feed)
    assert "code_1" in own_target.client[f"{two}_to"]["items"].index_information()
    led.until(lambda: present() == ["new", refused], "the drop that is not refused")
    assert led.held(feed).keys() == ({dropped} if refused == "orders" else set())
    own_target.client.admin.command("configureFailPoint", "failCommand", mode="off")
    led.resume_refused(feed)
    led.until(lambda: led.settled(feed, 7) and not led.stragglers(feed))
    assert present() == ["new"]
    assert dropped not in led.assigned(feed)
