"""`sluice table rejected`, `retry-rejected` and `drop-rejected`, against a real server; the letters are written as a task writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import bson
import pytest
from pymongo.collection import Collection

from changefeed.event import RowType
from changefeed.table import TableId, TableName
from devstack.mongodb.server import Client
from sink.mongodb.letters.dead_letter import Kept, ids_of, letter_update
from sink.row import RowChange, TargetTable
from tests.component.node.server_process import Server
from tests.until import until


class Feed(NamedTuple):
    id: str
    table: TargetTable
    letters: Collection[dict[str, Any]]

    def refuse(self, *keys: Any) -> None:
        for key in keys:
            document = {"_id": key, "v": 1}
            raw = bson.encode(document)
            change = RowChange(self.table, RowType.INSERT, bson.encode({"_id": key}), raw, None, 5 << 32, b"82")
            statement = letter_update(self.id, change, f"{key} is refused (code 171)")
            self.letters.update_one(statement["q"], statement["u"], upsert=True)

    @property
    def keys(self) -> list[str]:
        return sorted(letter["key"] for letter in self.letters.find({"event": {"$exists": True}}))

    @property
    def requests(self) -> int:
        prefix = ids_of(self.id, Kept.REQUEST)
        return self.letters.count_documents({"_id": {"$gte": prefix, "$lt": f"{prefix}~"}})


@pytest.fixture
def feed(
    server: Server, database: str, source_client: Client, target_client: Client, source_uri: str, target_uri: str
) -> Iterator[Feed]:
    source_client[database]["orders"].insert_one({"_id": 1})
    target_client[database]["orders"].insert_one({"_id": 1})
    configuration = {
        "id": database,
        "source": source_uri,
        "sink": target_uri,
        "start": "now",
        "filter": {"tables": [f"{database}.orders"]},
        "dead_letter": f"{database}.rejected",
    }
    created = server.sluice("changefeed", "create", "-", input=json.dumps(configuration))
    assert created.returncode == 0, created.stderr
    until(lambda: "orders" in server.sluice("table", "list", database).stdout, "the table")
    [info] = source_client[database].list_collections(filter={"name": "orders"})
    name = TableName(database, "orders")
    table = TargetTable(id=TableId(info["info"]["uuid"].hex()), source=name, name=name)
    yield Feed(database, table, target_client[database]["rejected"])
    server.sluice("changefeed", "remove", database, "--yes")


def test_rejected_rows_are_listed_for_people_and_for_programs(server: Server, feed: Feed) -> None:
    none = server.sluice("table", "rejected", feed.id)
    assert (none.returncode, none.stdout) == (0, f"changefeed {feed.id} has no rejected rows\n"), none.stderr
    feed.refuse(7, "seven")
    lines = server.sluice("table", "rejected", feed.id).stdout.splitlines()
    assert lines[0].split() == ["TABLE", "KEY", "SINCE", "TRIED", "LAST", "TRIES", "ERROR"]
    assert any('{"_id": "seven"}' in line and "seven is refused (code 171)" in line for line in lines)
    listed = json.loads(server.sluice("table", "rejected", feed.id, str(feed.table.source), "-o", "json").stdout)
    found = {row["key"]: row for row in listed}
    assert set(found) == {'{"_id": 7}', '{"_id": "seven"}'}
    row = found['{"_id": 7}']
    assert (row["table"], row["table_id"], row["tries"], row["type"]) == (
        str(feed.table.source),
        feed.table.id,
        1,
        "insert",
    )
    assert (row["retry_requested"], "event" in row) == (False, False)
    assert row["first_rejected_at"] is not None
    assert json.loads(server.sluice("table", "rejected", feed.id, "shop.other", "-o", "json").stdout) == []


def test_a_retry_is_requested_for_the_rows_that_are_named(server: Server, feed: Feed) -> None:
    feed.refuse(7, 8, "seven")
    table = str(feed.table.source)
    asked = server.sluice("table", "retry-rejected", feed.id, table, "7", '"seven"')
    assert asked.stdout.startswith(f"2 rows of {table} will be tried again; "), asked.stderr
    listed = json.loads(server.sluice("table", "rejected", feed.id, "-o", "json").stdout)
    assert {row["key"] for row in listed if row["retry_requested"]} == {'{"_id": 7}', '{"_id": "seven"}'}
    assert "1, again soon" in server.sluice("table", "rejected", feed.id).stdout
    assert server.sluice("table", "retry-rejected", feed.id, feed.table.id).stdout.startswith("3 rows of ")
    assert feed.requests == 3


def test_dropped_rows_are_forgotten_with_their_requests(server: Server, feed: Feed) -> None:
    feed.refuse(7, 8, 9)
    table = str(feed.table.source)
    server.sluice("table", "retry-rejected", feed.id, table)
    unsure = server.sluice("table", "drop-rejected", feed.id, table, "7")
    assert (unsure.returncode, "There is no terminal to ask on; confirm with --yes." in unsure.stderr) == (2, True)
    dropped = server.sluice("table", "drop-rejected", feed.id, table, '{"_id": 7}', "--yes")
    assert dropped.stdout == f"forgot 1 rejected row of {table}; the target is as it was\n"
    assert (feed.keys, feed.requests) == (['{"_id": 8}', '{"_id": 9}'], 2)
    assert server.sluice("table", "drop-rejected", feed.id, table, "--yes").returncode == 0
    assert (feed.keys, feed.requests) == ([], 0)


def test_a_row_that_is_not_there_is_named_and_nothing_happens(server: Server, feed: Feed) -> None:
    feed.refuse(7)
    table = str(feed.table.source)
    for command in (("retry-rejected",), ("drop-rejected", "--yes")):
        missing = server.sluice("table", *command, feed.id, table, "7", "8")
        assert missing.returncode == 3
        assert (
            f"has no rejected row of {table} with the key 8; `sluice table rejected {feed.id}` lists" in missing.stderr
        )
    assert (feed.keys, feed.requests) == (['{"_id": 7}'], 0)


def test_rows_of_a_table_that_is_gone_can_only_be_dropped(server: Server, feed: Feed) -> None:
    gone = feed._replace(
        table=TargetTable(id=TableId("cd" * 16), source=TableName("shop", "gone"), name=feed.table.name)
    )
    gone.refuse(1)
    refused = server.sluice("table", "retry-rejected", feed.id, "shop.gone")
    assert (refused.returncode, "drop them: `sluice table drop-rejected" in refused.stderr) == (3, True)
    assert server.sluice("table", "drop-rejected", feed.id, "shop.gone", "--yes").returncode == 0
    assert feed.keys == []


def test_a_changefeed_without_dead_letters_says_how_to_have_them(
    server: Server, database: str, source_uri: str, target_uri: str
) -> None:
    flags = [
        "--id",
        database,
        "--source",
        source_uri,
        "--sink",
        target_uri,
        "--start",
        "now",
        "--tables",
        f"{database}.*",
    ]
    assert server.sluice("changefeed", "create", *flags).returncode == 0
    refused = server.sluice("table", "rejected", database)
    assert (refused.returncode, "it has no dead_letter; pause it and update" in refused.stderr) == (1, True)
    server.sluice("changefeed", "remove", database, "--yes")


def test_dead_letters_in_a_replicated_table_are_refused(
    server: Server, feed: Feed, source_client: Client, source_uri: str, target_uri: str
) -> None:
    source_client[feed.id]["own"].insert_one({"_id": 1})
    configuration = {
        "id": f"{feed.id}-too",
        "source": source_uri,
        "sink": target_uri,
        "start": "now",
        "filter": {"tables": [f"{feed.id}.own"]},
    }
    for letters, said in (
        ("own", f"{feed.id}.own of the source"),
        ("orders", f"{feed.id}.orders of changefeed '{feed.id}'"),
    ):
        text = json.dumps(configuration | {"dead_letter": f"{feed.id}.{letters}"})
        refused = server.sluice("changefeed", "validate", "-", input=text)
        assert refused.returncode == 1
        assert f"dead_letter: {feed.id}.{letters} is where {said} is replicated to" in refused.stderr
