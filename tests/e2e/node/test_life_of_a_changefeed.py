"""A changefeed from its creation to its removal and back, through the command line alone, while the source is written to."""

from __future__ import annotations

import json
import uuid
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from devstack.mongodb.server import Client
from tests.component.node.server_process import Server
from tests.e2e.node.conftest import PATIENCE
from tests.e2e.node.workload import contents, writing
from tests.until import until

pytestmark = pytest.mark.costly("nodes with Spark, and each command of a changefeed's life")

_TABLES = ("notes", "orders")


class Life:
    """Sends each command to the next of the nodes."""

    def __init__(self, database: str, uris: tuple[str, str], source: Any, target: Any) -> None:
        self._database = database
        self._uris = uris
        self.source, self.target = source, target

    def sluice(self, *arguments: str, input: str | None = None) -> str:
        answer = self._answer(*arguments, input=input)
        assert answer.returncode == 0, f"sluice {' '.join(arguments)}: {answer.stderr}{answer.stdout}"
        return answer.stdout

    def _answer(self, *arguments: str, input: str | None) -> CompletedProcess[str]:
        return next(self._nodes).sluice(*arguments, input=input)

    def configuration(self, *tables: str) -> str:
        source, sink = self._uris
        patterns = [pattern.replace("DB", self._database) for pattern in tables]
        return yaml.safe_dump({"id": self._database, "source": source, "sink": sink, "filter": {"tables": patterns}})

    def create(self, *tables: str) -> None:
        self.sluice("changefeed", "create", "-", input=self.configuration(*tables))

    def update(self, *tables: str) -> str:
        """Asked again while a DDL is under way."""
        asked = ("changefeed", "update", self._database, "-", "--yes")

        def told() -> str:
            answer = self._answer(*asked, input=self.configuration(*tables))
            assert answer.returncode == 0 or "no DDL of a wanted table is open" in answer.stderr, answer
            return answer.stdout if answer.returncode == 0 else ""

        return until(told, "an update between two DDLs")

    def live(self, nodes: list[Server]) -> None:
        self._nodes = cycle(nodes)
        feed = self._database
        self.create("DB.orders")
        self.until_followed("orders")
        self.sluice("changefeed", "pause", feed)
        self.mark("orders", "while paused")
        assert json.loads(self.sluice("changefeed", "query", feed, "-o", "json"))["state"] == "stopped"
        assert self.target["orders"].find_one({"_id": "while paused"}) is None
        self.sluice("changefeed", "resume", feed)
        self.until_there("orders", "while paused")
        assert self.target.list_collection_names() == ["orders"]

        self.source["orders"].create_index("before")
        told = self.update("DB.*")
        assert "it runs on" in told
        self.source["notes"].create_index("after")
        self.until_followed("notes")
        self.until_followed("orders")
        for table, index in (("notes", "after_1"), ("orders", "before_1")):
            self.until_indexed(table, index)
        self.update("DB.*", "!DB.orders")
        self.until_followed("notes")
        until(lambda: "orders" not in self.tables(), "orders taken out")
        self.mark("orders", "taken out")
        self.until_followed("notes")
        assert self.target["orders"].find_one({"_id": "taken out"}) is None
        self.target["orders"].drop()
        self.sluice("changefeed", "pause", feed)
        self.update("DB.*")
        self.sluice("changefeed", "resume", feed)
        self.until_there("orders", "taken out")

        self.sluice("changefeed", "remove", feed, "--yes")
        assert feed not in self.sluice("changefeed", "list", "-o", "json")
        for table in _TABLES:
            self.target[table].drop()
        self.create("DB.*")
        for table in _TABLES:
            self.until_followed(table)
        assert "identical" in self.sluice("verify", feed)

    def tables(self) -> list[str]:
        listed = json.loads(self.sluice("table", "list", self._database, "-o", "json"))
        return [table["name"].partition(".")[2] for table in listed]

    def mark(self, table: str, id: str) -> None:
        self.source[table].insert_one({"_id": id})

    def until_there(self, table: str, id: str) -> None:
        until(lambda: self.target[table].find_one({"_id": id}) is not None, f"{id!r} in {table}")

    def until_indexed(self, table: str, index: str) -> None:
        """Rows do not wait for an index that changes nothing for them."""
        until(lambda: index in self.target[table].index_information(), f"{index} of {table}")

    def until_followed(self, table: str) -> None:
        """Waits until a row written now arrives."""
        mark = f"mark {self.source[table].count_documents({'_id': {'$type': 'string'}})}"
        self.mark(table, mark)
        self.until_there(table, mark)

    def end(self) -> None:
        self.sluice("changefeed", "finalize", self._database, "--yes")
        assert contents(self.target, _TABLES) == contents(self.source, _TABLES)
        self.sluice("changefeed", "remove", self._database, "--yes")


@pytest.fixture
def life(database: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client) -> Life:
    source, target = source_client[database], target_client[database]
    for table in _TABLES:
        source[table].insert_many([{"_id": f"before {number}"} for number in range(100)])
    return Life(database, (source_uri, target_uri), source, target)


@pytest.mark.parametrize("nodes", [1, pytest.param(3, marks=pytest.mark.soak)])
def test_a_changefeed_is_created_paused_resumed_updated_removed_and_created_again(
    nodes: int, node: Server, life: Life, etcd_endpoint: str, tmp_path: Path
) -> None:
    with ExitStack() as started:
        others = [("n1", "owner,processor"), ("n2", "owner,processor"), ("n3", "owner")] if nodes == 3 else []
        cluster = f"test-{uuid.uuid4().hex[:12]}"
        servers = [
            started.enter_context(
                Server(etcd_endpoint, tmp_path / name, *PATIENCE, cluster=cluster, name=name, roles=roles)
            )
            for name, roles in others
        ] or [node]
        with writing(life.source, _TABLES) as stop_writing:
            life.live(servers)
            stop_writing()
        life.end()
