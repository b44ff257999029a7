"""What a changefeed with a delay applies, and when, by the source's own clock."""

from __future__ import annotations

import json

import pytest

from devstack.mongodb.server import Client
from source.oplog.window import majority_time
from tests.component.node.server_process import Server
from tests.until import until

pytestmark = pytest.mark.costly("a node with Spark that waits, then catches up")

_SECONDS = 6


def test_changes_are_applied_late_and_at_once_when_the_delay_ends(
    node: Server, database: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client
) -> None:
    def sluice(*arguments: str) -> str:
        answer = node.sluice(*arguments)
        assert answer.returncode == 0, f"{arguments}: {answer.stderr}{answer.stdout}"
        return answer.stdout

    source, target = source_client[database], target_client[database]
    source["orders"].insert_one({"_id": "copied"})
    uris = ("--source", source_uri, "--sink", target_uri, "--tables", f"{database}.*")
    sluice("changefeed", "create", "--id", database, *uris, "--delay", f"{_SECONDS}s")
    until(lambda: target["orders"].find_one({"_id": "copied"}), "the copy, which does not wait")
    until(lambda: " following" in sluice("table", "list", database), "the end of the copy")
    written = majority_time(source_client)
    source["orders"].insert_one({"_id": "late"})
    source["dropped"].insert_one({})
    source["dropped"].drop()
    until(lambda: target["orders"].find_one({"_id": "late"}), "the row")
    assert majority_time(source_client).seconds >= written.seconds + _SECONDS
    assert json.loads(sluice("changefeed", "query", database, "-o", "json"))["delay"] == f"{_SECONDS}s"
    sluice("changefeed", "update", database, "--delay", "30d", "--yes")
    source["orders"].insert_one({"_id": "kept back"})
    source["orders"].drop()
    sluice("changefeed", "update", database, "--delay", "none", "--yes")
    until(lambda: "orders" not in target.list_collection_names(), "the drop")
    source["orders"].insert_one({"_id": "last"})
    sluice("changefeed", "update", database, "--delay", "1h", "--yes")
    assert "finished" in sluice("changefeed", "finalize", database, "--yes")
    assert target["orders"].find_one({"_id": "last"}), "a cut-over does not wait for the delay"
