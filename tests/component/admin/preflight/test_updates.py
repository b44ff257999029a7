"""An update keeps the deployments that its changefeed has replicated between, and loses no rows by changed names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.component.admin.preflight.test_validation import _IDENTIFIED, _READER, _WRITER, Site, server, sets, site
from tests.until import until

__all__ = ["server", "sets", "site"]


class PausedFeed:
    """Of `shop`, without rows: the server is no processor here."""

    def __init__(self, site: Site, source: str, sink: str, directory: Path, **fields: Any) -> None:
        self.server, self.directory = site.server, directory
        self.fields = {
            "id": "shop",
            "source": source,
            "sink": sink,
            "start": "now",
            "filter": {"tables": ["shop.*"]},
            **fields,
        }
        self.ask("create", self.file(**self.fields))
        self.ask("pause", "shop")

    def file(self, **fields: Any) -> str:
        path = self.directory / "feed.yaml"
        path.write_text(yaml.safe_dump(fields))
        return str(path)

    def ask(self, verb: str, *arguments: str) -> str:
        done = self.server.sluice("changefeed", verb, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def update(self, *flags: str, **fields: Any) -> str:
        return self.ask("update", "shop", self.file(**{**self.fields, **fields}), "--yes", *flags)

    def refused(self, *flags: str, **fields: Any) -> str:
        told = []
        for mode in ("--yes", "--dry-run"):
            asked = self.server.sluice(
                "changefeed", "update", "shop", self.file(**{**self.fields, **fields}), mode, *flags
            )
            assert asked.returncode == 1, asked.stdout
            told.append(asked.stderr)
        assert told[0] == told[1]
        return told[0]

    def version(self) -> int:
        return int(json.loads(self.ask("query", "shop", "-o", "json"))["version"])


@pytest.fixture
def feed(site: Site, tmp_path: Path) -> Iterator[PausedFeed]:
    made = PausedFeed(
        site,
        site.user(site.source, "reader", *_READER, _IDENTIFIED),
        site.user(site.target, "writer", *_WRITER),
        tmp_path,
    )
    yield made
    site.server.sluice("changefeed", "remove", "shop", "--yes")


def by_another_name(uri: str) -> str:
    assert "127.0.0.1" in uri
    return uri.replace("127.0.0.1", "localhost")


def test_another_deployment_is_refused_and_the_same_one_by_other_names_is_not(
    feed: PausedFeed, site: Site, source_uri: str, target_uri: str
) -> None:
    assert "sink: it is another deployment" in feed.refused(sink=target_uri)
    assert "source: it is another deployment" in feed.refused(source=source_uri)
    told = feed.refused(source=feed.fields["sink"], sink=feed.fields["source"])
    assert "source: it is the changefeed's sink" in told
    assert "sink: it is the changefeed's source" in told
    assert "sink: it is blackhole://, and was mongodb://" in feed.refused(sink="blackhole://")
    before = feed.version()
    told = feed.update(source=by_another_name(feed.fields["source"]), sink=by_another_name(feed.fields["sink"]))
    assert "the source is reached by another connection string; it is the same deployment" in told
    assert "horse" not in told
    assert feed.version() == before + 1


def test_a_source_that_hides_its_identity_is_proven_by_its_oplog(site: Site, tmp_path: Path, source_uri: str) -> None:
    """The readers here may not read the id of their deployment."""
    source = site.user(site.source, "reader", *_READER)
    feed = PausedFeed(site, source, site.user(site.target, "writer", *_WRITER), tmp_path)
    try:
        told = feed.refused(source=source_uri)
        assert "its oplog has no entry at a position of the changefeed, or it has none of its tables" in told
        feed.update(source=by_another_name(source))
    finally:
        site.server.sluice("changefeed", "remove", "shop", "--yes")


def test_a_sink_that_hides_its_identity_keeps_its_hosts(site: Site, tmp_path: Path, target_uri: str) -> None:
    sink = site.user(site.target, "writer", ("readWrite", "shop"), ("dbAdmin", "shop"))
    feed = PausedFeed(site, site.user(site.source, "reader", *_READER), sink, tmp_path)
    try:
        assert "on_divergence: repair -> fail" in feed.update(on_divergence="fail")
        told = feed.refused(sink=by_another_name(sink))
        assert "nothing proves that it is the deployment that it was" in told
        assert 'grantRolesToUser("writer", [{role: "clusterMonitor", db: "admin"}])' in told
        with site.target.client() as administrator:
            administrator.admin.command("grantRolesToUser", "writer", roles=[{"role": "clusterMonitor", "db": "admin"}])
        feed.update(sink=by_another_name(sink))
        assert "sink: it is another deployment" in feed.refused(sink=target_uri)
    finally:
        site.server.sluice("changefeed", "remove", "shop", "--yes")


def test_tables_that_would_come_under_one_name_are_refused(feed: PausedFeed, site: Site) -> None:
    site.reader["audit"]["orders"].insert_one({})
    both = {"tables": ["shop.*", "audit.*"]}
    merging = [{"from": "audit.*", "to": "shop.*"}]
    told = feed.refused(filter=both, routes=merging)
    assert "routes: audit.orders, shop.orders would all be shop.orders at the target" in told
    problems, _ = site.validated(feed.fields["source"], feed.fields["sink"], filter=both, routes=merging, start="now")
    assert any("audit.orders, shop.orders would all be shop.orders" in problem for problem in problems)
    joined = feed.file(**{**feed.fields, "filter": both, "routes": [{"from": "*.orders", "to": "all.orders"}]})
    told = feed.ask("update", "shop", joined, "--routes", "rename", "--dry-run")
    assert "table audit.orders: copied to all.orders, then followed" in told


def test_changed_names_are_refused_until_the_user_says_what_becomes_of_the_rows(feed: PausedFeed, site: Site) -> None:
    for name in ("orders", "items"):
        site.writer["shop"][name].insert_one({})
    moved = [{"from": "shop.*", "to": "dr.*"}]
    told = feed.refused(routes=moved)
    assert "shop.items becomes dr.items, shop.orders becomes dr.orders at the target" in told
    assert "--routes rename" in told
    assert "--routes copy" in told
    site.writer["dr"]["items"].insert_one({})
    assert "the target has dr.items already" in feed.refused("--routes", "rename", routes=moved)
    assert "it has documents already in dr.items" in feed.refused("--routes", "copy", routes=moved)
    site.writer.drop_database("dr")
    handed_on = [{"from": "shop.orders", "to": "shop.items"}, {"from": "shop.items", "to": "shop.parts"}]
    told = feed.refused("--routes", "copy", routes=handed_on, on_occupied="drop")
    assert "shop.items would stay at the target as what a table was before, and be the new name of another one" in told

    before = feed.version()
    shown = feed.ask("update", "shop", feed.file(**feed.fields, routes=moved), "--routes", "rename", "--dry-run")
    assert "routes: - -> from shop.* to dr.*" in shown
    assert "table shop.orders: shop.orders is renamed to dr.orders at the target" in shown
    asked = feed.server.sluice(
        "changefeed", "update", "shop", feed.file(**feed.fields, routes=moved), "--routes", "copy"
    )
    assert (asked.returncode, "confirm with --yes" in asked.stderr) == (2, True)
    assert "table shop.items: copied anew to dr.items; shop.items stays at the target as it is" in asked.stdout
    assert feed.version() == before

    told = feed.update("--routes", "rename", routes=moved)
    assert "updated to version" in told
    refused = feed.server.sluice("changefeed", "resume", "shop", "--start", "now", "--yes")
    assert "has to carry out its update first" in refused.stderr
    feed.ask("resume", "shop")
    names = {"items", "orders"}
    until(lambda: set(site.writer["dr"].list_collection_names()) == names, "the tables have their new names")
    assert site.writer["shop"].list_collection_names() == []


def test_a_table_that_was_made_anew_since_the_checkpoint_is_none_that_the_update_adds(
    feed: PausedFeed, site: Site
) -> None:
    site.writer["shop"]["orders"].insert_one({})
    site.reader["shop"]["orders"].drop()
    site.reader["shop"]["orders"].insert_one({})
    feed.update(on_divergence="fail")
    site.writer["shop"]["items"].insert_one({})
    site.reader["shop"]["items"].rename("orders", dropTarget=True)
    site.reader["shop"]["items"].insert_one({})
    feed.update(on_divergence="repair")
    site.writer["shop"]["more"].insert_one({})
    site.reader["shop"]["more"].insert_one({})
    assert "it has documents already in shop.more" in feed.refused(on_divergence="fail")


def test_a_program_gets_what_an_update_would_do_as_data(feed: PausedFeed, site: Site) -> None:
    site.writer["shop"]["orders"].insert_one({})
    changed = {
        **feed.fields,
        "routes": [{"from": "shop.orders", "to": "shop.sales"}],
        "filter": {"tables": ["shop.orders"]},
    }
    flags = ("--routes", "rename", "--dry-run", "-o", "json")
    shown = json.loads(feed.ask("update", "shop", feed.file(**changed), *flags))
    assert {(table["name"], table["effect"], table["target"]) for table in shown["tables"]} == {
        ("shop.orders", "renamed", "shop.sales"),
        ("shop.items", "removed", ""),
    }
    assert {option["path"] for option in shown["options"]} == {"filter.tables", "routes"}


def test_limits_change_without_a_pause(feed: PausedFeed) -> None:
    feed.ask("resume", "shop")
    shown = feed.ask("update", "shop", "--copy-limit", "20MB/s, 500 docs/s", "--apply-limit", "1MB/s", "--yes")
    assert "it runs on" in shown
    assert "resume it" not in shown
    found = json.loads(feed.ask("query", "shop", "-o", "json"))
    assert (found["copy_limit"], found["apply_limit"], found["desired"]) == (
        "20MB/s, 500 docs/s",
        "1MB/s",
        "running",
    )
    feed.ask("update", "shop", "--copy-limit", "none", "--yes")
    assert json.loads(feed.ask("query", "shop", "-o", "json"))["copy_limit"] == ""
    assert "pause it first" in feed.refused("--copy-limit", "1MB/s", on_divergence="fail")


def test_the_tables_alone_are_changed_without_a_file(feed: PausedFeed) -> None:
    before = json.loads(feed.ask("query", "shop", "-o", "json"))["configuration"]
    shown = feed.ask("update", "shop", "--tables", "shop.*", "--tables", "!shop.notes", "--yes")
    assert "filter.tables: " in shown
    after = json.loads(feed.ask("query", "shop", "-o", "json"))["configuration"]
    assert after["filter"] == {**before["filter"], "tables": ["shop.*", "!shop.notes"]}
    assert {**after, "filter": before["filter"]} == before
    assert (
        feed.ask("update", "shop", "--tables", "shop.*", "--tables", "!shop.notes", "--dry-run") == "nothing changes\n"
    )


def test_a_script_learns_whether_a_cut_over_would_succeed(feed: PausedFeed) -> None:
    asked = feed.server.sluice("changefeed", "ready", "shop")
    assert asked.returncode == 1
    assert "it is stopped; resume it" in asked.stderr
    found = json.loads(feed.server.sluice("changefeed", "ready", "shop", "-o", "json").stdout)
    assert (found["ready"], found["takes"], [each["kind"] for each in found["findings"]]) == (False, None, ["state"])


def test_a_script_learns_whether_the_source_lets_writes_be_blocked(feed: PausedFeed) -> None:
    """Its user reads only, or it is older than 6.0."""
    for asked in (("ready", "shop"), ("finalize", "shop", "--dry-run")):
        told = feed.server.sluice("changefeed", *asked, "--block-writes").stderr
        assert re.search("setUserWriteBlockMode|cannot block the writes", told)
        assert "rite" not in feed.server.sluice("changefeed", *asked).stderr
