"""`sluice verify`, against a real server, a source and a target."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.component.node.server_process import Server
from tests.component.verify.verified import Sides


@pytest.fixture(scope="module")
def server(etcd_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(etcd_endpoint, Path(tmp_path_factory.mktemp("server")) / "log") as started:
        yield started


@pytest.fixture
def feed(server: Server, database: str, source_uri: str, target_uri: str) -> Iterator[str]:
    """A paused changefeed, so that neither side changes."""
    flags = ["--source", source_uri, "--sink", target_uri, "--start", "now", "--tables", f"{database}.*"]
    created = server.sluice("changefeed", "create", "--id", database, *flags)
    assert created.returncode == 0, created.stderr
    paused = server.sluice("changefeed", "pause", database)
    assert paused.returncode == 0, paused.stderr
    yield database
    server.sluice("changefeed", "remove", database, "--yes")


def test_equal_sides_end_with_0_and_say_so(server: Server, feed: str, sides: Sides) -> None:
    sides.on_both("orders", [{"_id": number} for number in range(10)])
    sides.on_both("items", [])
    verified = server.sluice("verify", feed)
    assert verified.returncode == 0, verified.stderr
    first, items, orders, last = verified.stdout.splitlines()
    assert first.split() == ["TABLE", "SOURCE", "COUNT", "DOCUMENTS", "OPTIONS", "INDEXES", "OUTCOME"]
    assert items.split() == [f"{feed}.items", "=", "0", *["equal"] * 4]
    assert orders.split() == [f"{feed}.orders", "=", "10", *["equal"] * 4]
    assert last == "source and target are identical: 2 tables, 10 documents"


def test_nothing_to_compare_is_no_success(server: Server, feed: str) -> None:
    verified = server.sluice("verify", feed)
    assert verified.returncode == 1
    assert verified.stderr.startswith("sluice: nothing was compared: neither side has a table")


def test_differences_end_with_1_and_are_named(server: Server, feed: str, sides: Sides) -> None:
    sides.on_both("orders", [{"_id": number, "qty": 1} for number in range(10)])
    sides.target.orders.update_one({"_id": 3}, {"$set": {"qty": 2}})
    sides.target.orders.delete_one({"_id": 4})
    sides.source.orders.create_index("qty")
    verified = server.sluice("verify", feed, "--show")
    assert verified.returncode == 1
    assert "    3 differs: qty is 1 at the source, 2 at the target" in verified.stdout.splitlines()
    assert any(line.startswith("    4 missing at the target: source ") for line in verified.stdout.splitlines())
    assert "qty is" not in server.sluice("verify", feed).stdout
    assert "  indexes: index qty_1 is missing at the target" in verified.stdout.splitlines()
    assert "10 / 9" in verified.stdout
    assert verified.stderr == "sluice: 1 table: 1 different\n"


def test_programs_get_all_of_it(server: Server, feed: str, sides: Sides) -> None:
    sides.on_both("orders", [{"_id": 1}])
    sides.target.orders.insert_one({"_id": 2})
    verified = server.sluice("verify", feed, "-o", "json")
    found: dict[str, Any] = json.loads(verified.stdout)
    assert verified.returncode == 1
    assert {name: found[name] for name in ("outcome", "succeeded", "live")} == {
        "outcome": "different",
        "succeeded": False,
        "live": False,
    }
    (table,) = found["tables"]
    assert (table["name"], table["outcome"]) == (f"{feed}.orders", "different")
    digest = table["documents"]["differences"][0]["target"]
    assert len(digest) == 32
    assert table["documents"] == {
        "source": 1,
        "target": 2,
        "differences": [{"kind": "extra", "key": "2", "details": [], "source": "", "target": digest}],
        "complete": True,
        "repaired": 0,
    }
    assert yaml.safe_load(server.sluice("verify", feed, "-o", "yaml").stdout) == found


def test_options_of_the_command_reach_the_server(server: Server, feed: str, sides: Sides) -> None:
    sides.source.orders.insert_many([{"_id": 0, "a": 1, "b": 2}, *({"_id": number} for number in range(1, 9))])
    sides.target.orders.insert_one({"_id": 0, "b": 2, "a": 1})
    sides.source.other.insert_one({"_id": 1})
    found = json.loads(
        server.sluice(
            *("verify", feed, "--tables", f"{feed}.ord*", "--max-differences", "2", "--ignore-field-order"),
            *("--parallelism", "1", "-o", "json"),
        ).stdout
    )
    (table,) = found["tables"]
    assert [each["kind"] for each in table["documents"]["differences"]] == ["missing", "missing"]
    assert table["documents"]["complete"] is False


def test_wrong_wishes_are_refused(server: Server, feed: str) -> None:
    unknown = server.sluice("verify", f"{feed}-other")
    assert (unknown.returncode, "there is no changefeed" in unknown.stderr) == (3, True)
    nothing = server.sluice("verify", feed, "--tables", f"{feed}.nothing")
    assert (nothing.returncode, "has no table that" in nothing.stderr) == (3, True)
    pattern = server.sluice("verify", feed, "--tables", "orders")
    assert (pattern.returncode, "write database.collection" in pattern.stderr) == (1, True)
    assert server.sluice("verify", feed, "--max-differences", "0").returncode == 2


def test_a_blackhole_has_nothing_to_compare(server: Server, database: str, source_uri: str) -> None:
    flags = ["--source", source_uri, "--sink", "blackhole://", "--start", "now", "--tables", f"{database}.*"]
    server.sluice("changefeed", "create", "--id", f"{database}-void", *flags)
    verified = server.sluice("verify", f"{database}-void")
    assert (verified.returncode, "there is nothing to compare" in verified.stderr) == (1, True)
    server.sluice("changefeed", "remove", f"{database}-void", "--yes")


def test_a_changefeed_that_does_not_run_repairs_nothing_and_says_what_to_do(
    server: Server, feed: str, sides: Sides
) -> None:
    sides.source.orders.insert_one({"_id": 1})
    refused = server.sluice("verify", feed, "--repair")
    assert refused.returncode == 1
    assert (
        "is stopped, and rows are repaired by the nodes that replicate their tables: resume the changefeed"
        in refused.stderr
    )
