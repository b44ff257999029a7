"""Continuous verification on real servers: a pass goes on at each sync point, survives its node, and finds what a hand has changed in the target."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from devstack.mongodb.server import Client
from tests.component.node.server_process import Server
from tests.until import until

pytestmark = [pytest.mark.costly("a node that is killed, and passes at a megabyte a second"), pytest.mark.since("5.0")]

_ROWS, _ROW_BYTES = 90, 100_000


class Feed:
    def __init__(self, node: Server, database: str, target: Client) -> None:
        self.node = node
        self.id = database
        self.points = target["sluice"]["sync_points"]

    def sluice(self, *arguments: str) -> str:
        answer = self.node.sluice(*arguments)
        assert answer.returncode == 0, f"{arguments}: {answer.stderr}{answer.stdout}"
        return answer.stdout

    @property
    def verification(self) -> Any:
        shown = json.loads(self.sluice("changefeed", "query", self.id, "-o", "json"))
        return (shown["sync_points"] or {}).get("verification") or {}

    def until_pass(self, number: int, documents: int = 0) -> Any:
        """Waits until the pass of this number, or a later one, has ended. The first may have come before all tables were copied."""

        def ended() -> Any:
            found = self.verification
            for each in (found.get("present"), found.get("last")):
                if each and each["number"] >= number and each["ended_at"] and each["done"]["documents"] >= documents:
                    return each
            return None

        until(lambda: ended() is not None, f"the end of pass {number}")
        return ended()

    @property
    def number(self) -> int:
        return int((self.verification.get("present") or {"number": 0})["number"])


@pytest.fixture
def feed(
    node: Server,
    database: str,
    source_uri: str,
    target_uri: str,
    source_client: Client,
    target_client: Client,
    tmp_path: Path,
) -> Any:
    source = source_client[database]
    source.big.insert_many([{"_id": key, "filler": "x" * _ROW_BYTES} for key in range(_ROWS)])
    source.small.insert_many([{"_id": key, "a": 1, "b": {"c": key}} for key in range(10)])
    file = tmp_path / "feed.yaml"
    file.write_text(
        f"id: {database}\nsource: {source_uri}\nsink: {target_uri}\nfilter: {{tables: ['{database}.*']}}\n"
        "sync_points: {every: 10s}\nverify: {continuous: true, budget: 1MB/s}\n"
    )
    feed = Feed(node, database, target_client)
    feed.sluice("changefeed", "create", str(file))
    yield feed
    feed.sluice("changefeed", "remove", database, "--yes")


def test_a_pass_survives_its_node_and_the_next_one_finds_what_a_hand_has_changed(
    feed: Feed, target_client: Client
) -> None:
    present = until(lambda: feed.verification.get("present"), "the first part")
    assert present["number"] == 1
    feed.node.kill()
    feed.node.start()
    feed.node.until_ready()
    whole = feed.until_pass(1, documents=_ROWS + 10)
    assert whole["done"]["different"] == 0
    target = target_client[feed.id]
    target.small.update_one({"_id": 3}, {"$set": {"b.c": "by hand"}})
    target.small.replace_one({"_id": 4}, {"b": {"c": 4}, "a": 1})
    target.big.delete_one({"_id": _ROWS - 1})
    found = feed.until_pass(feed.number + 1)
    assert (found["done"]["different"], found["done"]["reordered"]) == (2, 1)
    assert found["first_in"] in {f"{feed.id}.big", f"{feed.id}.small"}
    record = feed.points.find_one({"feed": feed.id, "verified.differences.key": "3"}, sort=[("_id", -1)])
    assert record is not None
    differences = {each["key"]: each for each in record["verified"]["differences"] if each["table"].endswith("small")}
    assert {key: each["kind"] for key, each in differences.items()} == {"3": "changed", "4": "reordered"}
    assert all(each["source"] != each["target"] and len(each["source"]) == 32 for each in differences.values())
    listed = json.loads(feed.sluice("changefeed", "sync-points", feed.id, "-o", "json"))
    assert any((each["verified"] or {"different": 0})["different"] for each in listed)
    metrics = urllib.request.urlopen(f"http://{feed.node.http}/metrics").read().decode()
    assert f'sluice_verify_different{{changefeed="{feed.id}"}} 2.0' in metrics
    text = feed.sluice("changefeed", "query", feed.id)
    assert "2 differences, 1 with another order of fields" in text
    at = ("verify", feed.id, "--at", "latest", "--tables", f"{feed.id}.small")
    without, shown = feed.node.sluice(*at), feed.node.sluice(*at, "--show")
    assert (without.returncode, shown.returncode) == (1, 1)
    assert f"3 differs: source {differences['3']['source']}, target {differences['3']['target']}" in without.stdout
    assert "by hand" not in without.stdout
    assert 'b.c is 3 at the source, "by hand" at the target' in shown.stdout
    assert "4 has its fields in another order" in shown.stdout
    repaired = json.loads(feed.sluice("verify", feed.id, "--at", "latest", "--repair", "-o", "json"))
    assert (repaired["outcome"], repaired["repaired"]) == ("equal", 3)
    assert float(repaired["source_ts"]) > record["source"]["at"].time
    assert target.small.find_one({"_id": 3}) == {"_id": 3, "a": 1, "b": {"c": 3}}
