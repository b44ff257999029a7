"""Tables change their names downstream, by the command line alone, while the source is written to: no row is lost, and none is under two names."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from devstack.mongodb.server import Client
from tests.component.node.server_process import Server
from tests.e2e.node.workload import writing
from tests.until import until

_TABLES = ("notes", "orders")


class Feed:
    """Of two databases of the source: `one`, with tables and writers, and `two`, which is empty at first."""

    def __init__(self, node: Server, one: str, two: str, uris: tuple[str, str], source: Client, target: Client) -> None:
        self.node, self.one, self.two, self.uris = node, one, two, uris
        self.source, self.target = source, target

    def sluice(self, *arguments: str, input: str | None = None) -> str:
        answer = self.node.sluice(*arguments, input=input)
        assert answer.returncode == 0, f"sluice {' '.join(arguments)}: {answer.stderr}{answer.stdout}"
        return answer.stdout

    def configuration(self, *rules: tuple[str, str]) -> str:
        return yaml.safe_dump(
            {
                "id": self.one,
                "source": self.uris[0],
                "sink": self.uris[1],
                "filter": {"tables": [f"{self.one}.*", f"{self.two}.*"]},
                "routes": [{"from": taken, "to": given} for taken, given in rules],
            }
        )

    def update(self, routes: str, *rules: tuple[str, str]) -> str:
        self.sluice("changefeed", "pause", self.one)
        told = self.sluice(
            "changefeed", "update", self.one, "-", "--routes", routes, "--yes", input=self.configuration(*rules)
        )
        self.sluice("changefeed", "resume", self.one)
        return told

    def queried(self) -> Any:
        return json.loads(self.sluice("changefeed", "query", self.one, "-o", "json"))

    def until_followed(self, source: str, target: str) -> None:
        """Waits until a row written now arrives."""
        (db, table), (there_db, there) = source.split("."), target.split(".")
        mark = f"mark {self.source[db][table].count_documents({'_id': {'$type': 'string'}})}"
        self.source[db][table].insert_one({"_id": mark})
        until(lambda: self.target[there_db][there].find_one({"_id": mark}) is not None, f"{mark} in {target}")

    def rows(self, client: Client, name: str) -> int:
        db, table = name.split(".")
        return client[db][table].count_documents({})


@pytest.fixture
def feed(
    node: Server,
    fresh_database: Callable[[], str],
    source_uri: str,
    target_uri: str,
    source_client: Client,
    target_client: Client,
) -> Feed:
    made = Feed(node, fresh_database(), fresh_database(), (source_uri, target_uri), source_client, target_client)
    for table in _TABLES:
        source_client[made.one][table].insert_many([{"_id": f"before {number}"} for number in range(100)])
    return made


@pytest.mark.soak
def test_renamed_copied_and_stopped_for_a_taken_name(feed: Feed) -> None:
    one, two = feed.one, feed.two
    feed.sluice("changefeed", "create", "-", input=feed.configuration((f"{one}.*", f"{one}_a.*")))
    with writing(feed.source[one], _TABLES) as stop_writing:
        for table in _TABLES:
            feed.until_followed(f"{one}.{table}", f"{one}_a.{table}")
        told = feed.update("rename", (f"{one}.*", f"{one}_b.*"))
        assert f"table {one}.notes: {one}_a.notes is renamed to {one}_b.notes at the target" in told
        for table in _TABLES:
            feed.until_followed(f"{one}.{table}", f"{one}_b.{table}")
        assert feed.target[f"{one}_a"].list_collection_names() == []

        feed.update("copy", (f"{one}.notes", f"{one}_b.letters"), (f"{one}.*", f"{one}_b.*"))
        feed.until_followed(f"{one}.notes", f"{one}_b.letters")
        feed.until_followed(f"{one}.orders", f"{one}_b.orders")
        assert feed.rows(feed.target, f"{one}_b.notes") >= 100, "the old table stays"

        rules = [(f"{two}.orders", f"{one}_b.orders"), (f"{one}.notes", f"{one}_b.letters"), (f"{one}.*", f"{one}_b.*")]
        feed.update("rename", *rules)
        feed.until_followed(f"{one}.orders", f"{one}_b.orders")
        feed.source[two]["orders"].insert_one({"_id": "from two"})
        until(lambda: feed.queried()["stopped_tables"] == 1, "the table whose name is taken stops")
        [stopped] = feed.queried()["stopped"]
        assert (stopped["name"], stopped["error"]["code"]) == (f"{two}.orders", "name_taken")
        feed.source[two]["orders"].insert_one({"_id": "from two, later"})
        feed.until_followed(f"{one}.orders", f"{one}_b.orders")
        assert feed.target[f"{one}_b"]["orders"].find_one({"_id": {"$regex": "from two"}}) is None

        feed.update("rename", (f"{two}.*", f"{two}_b.*"), *rules[1:])
        feed.until_followed(f"{two}.orders", f"{two}_b.orders")
        assert feed.target[f"{two}_b"]["orders"].count_documents({"_id": {"$regex": "from two"}}) == 2
        assert feed.queried()["stopped_tables"] == 0
        stop_writing()
    assert "identical" in feed.sluice("verify", one)
    feed.sluice("changefeed", "remove", one, "--yes")
