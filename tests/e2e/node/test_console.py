"""The web console of a real node, in a real browser."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from playwright.sync_api import expect

from devstack.etcd.server import EtcdServer
from devstack.mongodb.server import Client
from tests.browser import Chromium, barriers
from tests.component.node.server_process import Server
from tests.until import until

_LOST = r"ERR_|Failed to load|status of 40"


_TABLES = ("carts", "notes", "orders")
"""Each is for one test."""


@pytest.fixture(scope="module")
def feed(node: Server, source_uri: str, target_uri: str, source_client: Client, target_client: Client) -> Iterator[str]:
    """A changefeed whose tables are followed. A test leaves nothing behind that needs a user."""
    name = f"console_{uuid.uuid4().hex[:8]}"
    for table in _TABLES:
        source_client[name][table].insert_one({"_id": "before"})
    written = {"id": name, "source": source_uri, "sink": target_uri, "filter": {"tables": [f"{name}.*"]}}
    created = node.sluice("changefeed", "create", "-", input=yaml.safe_dump(written))
    assert created.returncode == 0, created.stderr
    for table in _TABLES:
        until(lambda table=table: bool(target_client[name][table].find_one()), f"{table} to be copied")  # type: ignore[misc]
    yield name
    node.sluice("changefeed", "remove", name, "--yes")
    for client in (source_client, target_client):
        client.drop_database(name)


@pytest.mark.costly("the node of this folder starts with it, and the browser")
def test_a_table_that_stops_appears_by_itself_and_its_button_resumes_it(
    node: Server, chromium: Chromium, feed: str, source_client: Client, target_client: Client
) -> None:
    source, target = source_client[feed].orders, target_client[feed].orders
    with chromium.page() as page:
        page.goto(f"{node.console}/feed/{feed}")
        expect(page.locator("#needs")).to_contain_text("nothing")
        page.evaluate("window.sameDocument = true")
        target.create_index("code", unique=True, partialFilterExpression={"code": {"$gt": 0}})
        source.insert_many([{"_id": 1, "code": 7}, {"_id": 2, "code": 7}])
        until(lambda: any(_is_stop(line, feed) for line in logged(node)), "the table to be stopped")
        needs = page.locator("#needs .need")
        expect(needs).to_contain_text("E11000 duplicate key error")
        expect(needs).to_contain_text(f"{feed}.orders")
        source.rename("returns")
        expect(page.locator("#barrier")).to_contain_text(f"held by rename {feed}.orders")
        assert page.evaluate("window.sameDocument") is True
        assert barriers(page) == []
        target.drop_index("code_1")
        needs.get_by_role("link", name="Resume").click()
        form = page.get_by_role("dialog")
        expect(form).to_contain_text(f"sluice table resume {feed} {feed}.orders")
        assert barriers(page) == []
        form.get_by_role("button", name="Resume table").click()
        expect(page.get_by_role("status")).to_contain_text("Done: Resume table")
        expect(page.locator("#needs")).to_contain_text("nothing")
        expect(page.locator("#barrier")).not_to_contain_text("held by")
    assert target_client[feed].returns.count_documents({"code": 7}) == 2
    of_feed = (line for line in logged(node) if line["event"] == "audit" and line.get("changefeed") == feed)
    audited = next(line for line in of_feed if "resume" in str(line))
    assert (audited["by"], audited["address"], audited["subject"]) == ("anonymous", "127.0.0.1", f"{feed}.orders")


def logged(node: Server) -> list[dict[str, Any]]:
    return [json.loads(line) for line in node.log.splitlines() if line.startswith("{")]


def _is_stop(line: dict[str, Any], feed: str) -> bool:
    return (line["event"], line.get("changefeed"), line.get("stopped")) == ("table_falls_behind", feed, True)


def test_a_dropped_table_leaves_and_its_ddl_is_on_the_timeline(
    node: Server, chromium: Chromium, feed: str, source_client: Client
) -> None:
    with chromium.page() as page:
        page.goto(f"{node.console}/feed/{feed}")
        expect(page.locator("#tables")).to_contain_text(f"{feed}.notes")
        source_client[feed].notes.drop()
        row = page.locator("#ddl tbody tr").filter(has_text="drop").filter(has_text=f"{feed}.notes")
        expect(row).to_contain_text("done")
        expect(page.locator("#tables")).not_to_contain_text(f"{feed}.notes")
        expect(page.locator("#barrier")).to_contain_text("2 tables on n1")


def test_pages_can_be_used_by_everybody(node: Server, chromium: Chromium, feed: str) -> None:
    paths = (
        "/",
        f"/feed/{feed}",
        f"/feed/{feed}/act/finalize",
        f"/feed/{feed}/readiness",
        f"/feed/{feed}/history",
        "/x",
    )
    with chromium.page(_LOST) as page:
        for path in paths:
            page.goto(node.console + path)
            expect(page.get_by_role("main")).to_be_visible()
            for scheme, width in _LOOKS:
                page.emulate_media(color_scheme=scheme)
                page.set_viewport_size({"width": width, "height": 800})
                assert barriers(page) == [], (path, scheme)
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, width)


_LOOKS: tuple[tuple[Literal["light", "dark"], int], ...] = (("light", 1300), ("dark", 360))


def test_pages_work_without_a_script(node: Server, chromium: Chromium, feed: str) -> None:
    with chromium.page(java_script_enabled=False) as page:
        page.goto(f"{node.console}/feed/{feed}?q=carts")
        expect(page.locator("#tables tbody tr")).to_have_count(1)
        page.locator("#tables").get_by_role("link", name="Stop").click()
        page.get_by_role("button", name="Stop table").click()
        expect(page.locator("#needs")).to_contain_text("A user stopped it")
        page.get_by_role("link", name="History").click()
        expect(page.get_by_role("row").filter(has_text="stop table")).to_contain_text("127.0.0.1")
        page.goto(f"{node.console}/feed/{feed}")
        page.locator("#needs").get_by_role("link", name="Resume").click()
        page.get_by_role("button", name="Resume table").click()
        expect(page.locator("#needs")).to_contain_text("nothing")


@pytest.fixture
def guarded(own_etcd: EtcdServer, tmp_path: Path) -> Iterator[Server]:
    """An owner without Spark, whose pages want a token."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"wall:viewer:{'v' * 32}\nmaria:operator:{'o' * 32}\n")
    flags = ("--token-file", str(tokens), "--session-ttl", "10")
    with Server(own_etcd.endpoint, tmp_path / "log", *flags) as started:
        yield started


def test_a_viewer_has_no_buttons_and_a_page_says_when_it_is_old(
    guarded: Server, own_etcd: EtcdServer, chromium: Chromium
) -> None:
    with chromium.page(_LOST) as page:
        page.goto(guarded.console)
        page.get_by_label("Token").fill("v" * 32)
        page.get_by_role("button", name="Sign in").click()
        nodes, bar = page.locator("#nodes"), page.get_by_role("alert")
        expect(nodes).to_contain_text("n1")
        expect(page.get_by_text("wall (viewer)")).to_be_visible()
        assert page.locator("a[data-dialog]").count() == 0
        assert barriers(page) == []
        expect(bar).to_be_hidden()

        own_etcd.pause()
        expect(bar).to_contain_text("What is shown may be old: the node")
        expect(nodes).to_contain_text("ready")
        own_etcd.resume()
        expect(bar).to_be_hidden()

        [process, *_] = guarded.processes
        process.suspend()
        expect(bar).to_contain_text("No word from the node")
        process.resume()
        expect(bar).to_be_hidden()

        guarded.kill()
        expect(bar).to_contain_text("No word from the node")
        guarded.start()
        expect(bar).to_be_hidden()  # the same cookie holds after a restart
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Token")).to_be_visible()
