"""One table's trouble stays its own: the target refuses rows and DDLs of single tables, and an operator acts by the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from devstack.mongodb.server import Client
from tests.component.node.server_process import Server
from tests.e2e.node.conftest import PATIENCE
from tests.until import until

_TABLES = ("notes", "orders", "items")


class Trouble:
    def __init__(self, server: Server, id: str, source: Any, target: Any) -> None:
        self._server = server
        self._id = id
        self.source, self.target = source, target

    def sluice(self, *arguments: str, input: str | None = None) -> str:
        answer = self._server.sluice(*arguments, input=input)
        assert answer.returncode == 0, f"sluice {' '.join(arguments)}: {answer.stderr}{answer.stdout}"
        return answer.stdout

    def refused(self, *arguments: str) -> str:
        answer = self._server.sluice(*arguments)
        assert answer.returncode == 1, f"sluice {' '.join(arguments)}: {answer.stdout}"
        return answer.stderr

    def table(self, name: str) -> dict[str, Any]:
        tables = json.loads(self.sluice("table", "list", self._id, "-o", "json"))
        return next(table for table in tables if table["name"] == f"{self._id}.{name}")

    def until_trouble(self, name: str, kind: str) -> dict[str, Any]:
        until(lambda: self.table(name)["trouble"] == kind, f"{name} to be {kind or 'well'}")
        return self.table(name)

    def until_followed(self, name: str, key: object) -> None:
        self.source[name].insert_one({"_id": key})
        until(lambda: self.target[name].find_one({"_id": key}) is not None, f"{key} in {name}")

    def resume(self, name: str) -> None:
        self.sluice("table", "resume", self._id, f"{self._id}.{name}")


@contextmanager
def _followed(server: Server, uris: tuple[str, str], source: Any, target: Any) -> Iterator[Trouble]:
    """A changefeed of three tables, all of which are followed."""
    database = source.name
    for table in _TABLES:
        source[table].insert_one({"_id": "before"})
    found = Trouble(server, database, source, target)
    feed = {"id": database, "source": uris[0], "sink": uris[1], "filter": {"tables": [f"{database}.*"]}}
    found.sluice("changefeed", "create", "-", input=yaml.safe_dump(feed))
    for table in _TABLES:
        found.until_followed(table, "copied")
    yield found
    server.sluice("changefeed", "remove", database, "--yes")


@pytest.fixture
def trouble(
    node: Server, database: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client
) -> Iterator[Trouble]:
    with _followed(node, (source_uri, target_uri), source_client[database], target_client[database]) as found:
        yield found


@pytest.fixture
def trouble_of_two_nodes(
    etcd_endpoint: str,
    tmp_path: Path,
    database: str,
    source_uri: str,
    target_uri: str,
    source_client: Client,
    target_client: Client,
) -> Iterator[Trouble]:
    source, target = source_client[database], target_client[database]
    with (
        Server(etcd_endpoint, tmp_path / "n1", *PATIENCE, name="n1", roles="owner,processor") as first,
        Server(etcd_endpoint, tmp_path / "n2", *PATIENCE, cluster=first.cluster, name="n2", roles="owner,processor"),
        _followed(first, (source_uri, target_uri), source, target) as found,
    ):
        yield found


def test_a_row_that_the_target_refuses_stops_its_table_until_an_operator_resumes_it(
    trouble: Trouble, database: str
) -> None:
    one_code = {"partialFilterExpression": {"code": {"$gt": 0}}}
    trouble.target["orders"].create_index("code", unique=True, **one_code)
    trouble.source["orders"].insert_many([{"_id": 1, "code": 7}, {"_id": 2, "code": 7}])
    stopped = trouble.until_trouble("orders", "stopped")
    assert "E11000 duplicate key error" in stopped["error"]["message"]
    assert "resume the table" in stopped["error"]["message"]
    for table in ("notes", "items"):
        trouble.until_followed(table, "while stopped")
    feed = json.loads(trouble.sluice("changefeed", "query", database, "-o", "json"))
    assert (feed["state"], feed["stopped_tables"]) == ("normal", 1)
    assert [table["name"] for table in feed["stopped"]] == [f"{database}.orders"]
    trouble.resume("orders")
    trouble.until_trouble("orders", "stopped")
    trouble.target["orders"].drop_index("code_1")
    trouble.resume("orders")
    trouble.until_followed("orders", "after")
    trouble.until_trouble("orders", "")
    assert "identical" in trouble.sluice("verify", database)


def test_a_changefeed_finishes_without_its_stopped_table_when_an_operator_says_so(
    trouble: Trouble, database: str
) -> None:
    trouble.sluice("table", "stop", database, f"{database}.orders")
    trouble.source["orders"].create_index("at", expireAfterSeconds=60)
    for table in _TABLES:
        trouble.source[table].insert_one({"_id": "while stopped"})
    refused = trouble.refused("changefeed", "finalize", database, "--yes")
    assert f"1 of its tables wait for a user: {database}.orders (stopped);" in refused
    assert "finish without them (--leave-stopped)" in refused
    finished = trouble.sluice("changefeed", "finalize", database, "--leave-stopped", "--yes")
    assert finished.splitlines()[-1].startswith(f"changefeed {database} finished at ")
    feed = json.loads(trouble.sluice("changefeed", "query", database, "-o", "json"))
    assert (feed["state"], [table["name"] for table in feed["stopped"]]) == ("finished", [f"{database}.orders"])
    there = {table for table in _TABLES if trouble.target[table].find_one({"_id": "while stopped"})}
    assert there == {"notes", "items"}
    assert list(trouble.target["orders"].index_information()) == ["_id_"]


@pytest.mark.soak
def test_a_table_that_is_stopped_for_too_many_ddls_is_copied_anew_with_those_that_nobody_kept(
    trouble: Trouble, database: str
) -> None:
    trouble.sluice("table", "stop", database, f"{database}.orders")
    for change in range(1001):
        trouble.source.command("collMod", "orders", validator={"$comment": f"change {change}"})
    lost = trouble.until_trouble("orders", "lost")
    assert "it stands still, and 1001 DDLs of it wait, more than are kept" in lost["error"]["message"]
    trouble.source.command("collMod", "orders", validator={"$comment": "the last one"})
    trouble.source["orders"].create_index("nobody kept")
    for table in ("notes", "items"):
        trouble.until_followed(table, "while lost")
    ddls = json.loads(trouble.sluice("ddl", "list", database, "-o", "json"))
    assert [ddl["state"] for ddl in ddls] == ["pending"] * 1001
    assert "copied anew" in trouble.refused("table", "resume", database, f"{database}.orders")
    trouble.sluice("table", "recopy", database, f"{database}.orders", "--yes")
    trouble.until_followed("orders", "after")
    trouble.until_trouble("orders", "")
    assert "identical" in trouble.sluice("verify", database)
    assert trouble.target["orders"].options()["validator"] == {"$comment": "the last one"}
    assert list(trouble.target["orders"].index_information()) == ["_id_", "nobody kept_1"]


@pytest.mark.soak
def test_a_stopped_table_survives_the_death_of_its_node_and_ends_with_its_drop(
    trouble_of_two_nodes: Trouble, database: str
) -> None:
    trouble = trouble_of_two_nodes
    trouble.sluice("table", "stop", database, f"{database}.orders")
    trouble.source["orders"].insert_one({"_id": "later"})
    trouble.source["orders"].rename("sales")
    home = trouble.until_trouble("orders", "stopped")["node"]
    other = next(
        node["name"] for node in json.loads(trouble.sluice("node", "list", "-o", "json")) if node["id"] != home
    )
    trouble.sluice("table", "move", database, f"{database}.orders", other)
    until(lambda: trouble.table("orders")["node"] not in ("", home), "the move of a stopped table")
    trouble.until_followed("notes", "while stopped")
    assert trouble.target["orders"].find_one({"_id": "later"}) is None
    trouble.resume("orders")
    until(
        lambda: trouble.target["sales"].find_one({"_id": "later"}) is not None, "the table goes on under its new name"
    )
    trouble.sluice("table", "stop", database, f"{database}.sales")
    trouble.source["sales"].rename("old")
    trouble.source["old"].drop()
    until(lambda: sorted(trouble.target.list_collection_names()) == ["items", "notes"], "the drop of a stopped table")
    assert "identical" in trouble.sluice("verify", database)


def test_a_refused_index_holds_its_table_alone_and_may_be_skipped(trouble: Trouble, database: str) -> None:
    trouble.target["orders"].insert_many([{"code": 1}, {"code": 1}])
    trouble.source["orders"].create_index("code", unique=True, partialFilterExpression={"code": {"$gt": 0}})
    refused = trouble.until_trouble("orders", "refused")
    assert "several documents at the target have" in refused["error"]["message"]
    for remedy in ("sluice table resume", "sluice ddl skip", "sluice table recopy"):
        assert remedy in refused["error"]["message"]
    trouble.source["orders"].insert_one({"_id": "held", "code": 2})
    for table in ("notes", "items"):
        trouble.until_followed(table, "while refused")
    [ddl] = [ddl for ddl in json.loads(trouble.sluice("ddl", "list", database, "-o", "json")) if "refused" in ddl]
    assert ddl["state"] == "pending"
    assert trouble.target["orders"].find_one({"_id": "held"}) is None
    said = trouble.sluice("ddl", "skip", database, f"{database}.orders", "--yes")
    assert said == f"createIndexes of {database}.orders is skipped\n"
    until(lambda: trouble.target["orders"].find_one({"_id": "held"}) is not None, "the table goes on")
    trouble.until_trouble("orders", "")
