"""A dry run of a creation shows all that a user wants to know before, and writes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.component.admin.preflight.test_validation import _IDENTIFIED, _READER, _WRITER, Site, server, sets, site

__all__ = ["server", "sets", "site"]


def feed(site: Site, directory: Path, **fields: Any) -> str:
    path = directory / "feed.yaml"
    source = site.user(site.source, "reader", *_READER, _IDENTIFIED)
    sink = site.user(site.target, "writer", *_WRITER)
    path.write_text(
        yaml.safe_dump({"id": "plan", "source": source, "sink": sink, "filter": {"tables": ["shop.*"]}, **fields})
    )
    return str(path)


def test_a_dry_run_shows_tables_sizes_and_an_estimate_and_writes_nothing(site: Site, tmp_path: Path) -> None:
    site.reader["shop"]["orders"].insert_many([{"padding": "x" * 10_000} for _ in range(300)])
    before = site.writer.list_database_names()
    path = feed(site, tmp_path)
    done = site.server.sluice("changefeed", "create", path, "--dry-run", "-o", "json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    [orders] = [table for table in plan["tables"] if table["name"] == "shop.orders"]
    assert (orders["at_target"], orders["chunks"], plan["capture"]) == ("created", 1, "oplog")
    assert orders["documents"] >= 300
    assert plan["estimate"]["read_rate"] > 0
    assert plan["estimate"]["send_rate"] > 0
    assert plan["estimate"]["takes"] > 0
    assert site.writer.list_database_names() == before
    assert "plan" not in site.server.sluice("changefeed", "list").stdout
    told = site.server.sluice("changefeed", "create", path, "--dry-run").stdout
    assert "is created" in told
    assert "writes about a quarter of what is read" in told


def test_a_dry_run_shows_everything_before_it_fails_for_a_problem(site: Site, tmp_path: Path) -> None:
    site.writer["taken"]["orders"].insert_one({})
    path = feed(site, tmp_path, routes=[{"from": "shop.orders", "to": "taken.orders"}])
    done = site.server.sluice("changefeed", "create", path, "--dry-run")
    assert done.returncode == 1
    assert "has documents" in done.stdout
    assert "has documents already in taken.orders" in done.stderr
