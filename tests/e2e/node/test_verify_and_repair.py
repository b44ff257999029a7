"""`sluice verify --repair`, while the source is written to: rows that somebody changed at the target become equal again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import pytest
import yaml

from devstack.mongodb.server import Client
from tests.component.node.server_process import Server
from tests.until import until

_ROWS = 2_000
_DAMAGED = range(1_500)
"""More rows than one request has."""
_HELD_UP = 300
"""Rows whose unique values another row at the target has: a change of such a row would stop the table."""


class Damaged:
    def __init__(self, server: Server, id: str, uris: tuple[str, str], source: Any, target: Any) -> None:
        self._server = server
        self.id = id
        self._uris = uris
        self.source, self.target = source, target

    def create(self, **options: Any) -> None:
        code, _, error = self.sluice("changefeed", "create", "-", input=self.configuration(**options))
        assert code == 0, error

    def configuration(self, **options: Any) -> str:
        source, sink = self._uris
        feed = {"id": self.id, "source": source, "sink": sink, "filter": {"tables": [f"{self.id}.*"]}, **options}
        return yaml.safe_dump(feed)

    def until_copied(self, table: str) -> None:
        count = self.source[table].count_documents({})
        until(lambda: self.target[table].count_documents({}) == count, f"{table} to be copied")
        self.source[table].insert_one({"_id": "followed"})
        until(lambda: self.target[table].find_one({"_id": "followed"}), f"{table} to be followed")

    def sluice(self, *arguments: str, input: str | None = None) -> tuple[int, str, str]:
        answer = self._server.sluice(*arguments, input=input)
        return answer.returncode, answer.stdout, answer.stderr

    def repaired(self) -> dict[str, Any]:
        code, out, error = self.sluice("verify", self.id, "--repair", "-o", "json")
        found: dict[str, Any] = json.loads(out)
        assert code == 0, f"{error}{self._server.sluice('verify', self.id).stdout}"
        return found

    @contextmanager
    def written(self) -> Iterator[None]:
        """Updates and inserts go on, of damaged rows too."""
        over = Event()

        def write() -> None:
            number = 0
            while not over.wait(0.002):
                number += 1
                key = {"_id": _HELD_UP + number * 7 % (_ROWS - _HELD_UP)}
                self.source["orders"].update_one(key, {"$set": {"n": number}, "$inc": {"in.it": 1}})
                self.source["orders"].insert_one({"_id": f"new {number}", "code": f"new {number}"})

        writer = Thread(target=write)
        writer.start()
        try:
            yield
        finally:
            over.set()
            writer.join()


@pytest.fixture
def damaged(
    node: Server, database: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client
) -> Iterator[Damaged]:
    yield Damaged(node, database, (source_uri, target_uri), source_client[database], target_client[database])
    node.sluice("changefeed", "remove", database, "--yes")


@pytest.mark.soak
def test_rows_damaged_in_three_ways_are_equal_again_while_the_source_is_written_to(damaged: Damaged) -> None:
    source, target = damaged.source["orders"], damaged.target["orders"]
    source.insert_many([{"_id": number, "code": f"c{number}", "in": {"it": 0}} for number in range(_ROWS)])
    source.create_index("code", unique=True)
    damaged.create()
    damaged.until_copied("orders")
    with damaged.written():
        target.delete_many({"_id": {"$in": [number for number in _DAMAGED if number % 3 == 0]}})
        target.update_many({"_id": {"$in": [number for number in _DAMAGED if number % 3 == 1]}}, {"$set": {"bad": 1}})
        target.insert_many([{"_id": f"extra {number}", "code": f"c{number * 3}"} for number in range(_HELD_UP // 3)])
        found = damaged.repaired()
    assert int(found["repaired"]) >= len(_DAMAGED) // 3 + _HELD_UP // 3, "replication itself notices missing rows only"
    assert found["outcome"] == "equal"
    code, out, _ = damaged.sluice("verify", damaged.id)
    assert (code, "identical" in out) == (0, True), out
    [row] = json.loads(damaged.sluice("table", "list", damaged.id, "-o", "json")[1])
    assert (row["rows_to_repair"], row["trouble"]) == (0, "")


@pytest.mark.soak
def test_rows_that_only_the_target_has_stay_where_a_setting_keeps_them(damaged: Damaged) -> None:
    damaged.source["orders"].insert_many([{"_id": number} for number in range(10)])
    damaged.target["orders"].insert_one({"_id": "there before"})
    damaged.create(on_occupied="keep")
    until(lambda: damaged.target["orders"].count_documents({}) == 11, "orders to be copied")
    damaged.target["orders"].delete_one({"_id": 3})
    code, out, _ = damaged.sluice("verify", damaged.id, "--repair")
    assert code == 1
    assert '"there before" at the target only' in out
    assert "repaired, and equal now: 1 document" in out
    assert "documents: not repaired: their table's node has read them at the source, and they still differ" in out
    assert damaged.target["orders"].find_one({"_id": 3}) == {"_id": 3}


@pytest.mark.soak
def test_what_the_target_may_not_see_is_not_repaired_into_it(damaged: Damaged) -> None:
    source, target = damaged.source["users"], damaged.target["users"]
    source.insert_many([{"_id": number, "mail": f"{number}@x", "ssn": "secret", "name": "A"} for number in range(50)])
    source.create_index("ssn", unique=True, partialFilterExpression={"ssn": {"$gt": "z"}})
    rule = {
        "tables": [f"{damaged.id}.users"],
        "drop": ["ssn"],
        "mask": {"name": "***"},
        "hash": ["mail"],
        "hash_key": "${env:SLUICE_TEST_HASH_KEY}",
    }
    code, _, error = damaged.sluice("changefeed", "create", "-", input=damaged.configuration(columns=[rule]))
    assert (code, "ssn is part of the unique index" in error) == (1, True), error
    source.drop_index("ssn_1")
    damaged.create(columns=[rule])
    until(lambda: target.count_documents({}) == 50, "users to be copied")
    source.update_many({"_id": {"$lt": 20}}, {"$set": {"ssn": "secret 2", "name": "B", "n": 1}})
    source.insert_one({"_id": "followed", "ssn": "secret", "n": 1})
    until(lambda: target.find_one({"_id": "followed"}), "users to be followed")
    code, out, error = damaged.sluice("verify", damaged.id)
    assert (code, "identical" in out) == (0, True), out
    assert target.find_one({"_id": "followed"}) == {"_id": "followed", "n": 1}
    assert {row["name"] for row in target.find({"name": {"$exists": True}})} == {"***"}
    target.delete_many({"_id": {"$lt": 5}})
    target.update_many({"_id": {"$gte": 5, "$lt": 9}}, {"$set": {"name": "A"}})
    assert int(damaged.repaired()["repaired"]) == 9
    assert not list(target.find({"$or": [{"ssn": {"$exists": True}}, {"name": {"$in": ["A", "B"]}}]}))

    source.rename("people")
    [table] = until_refused(damaged)
    assert "`columns` shows other fields" in table["error"]["message"]
    damaged.sluice("changefeed", "pause", damaged.id)
    code, _, error = damaged.sluice("changefeed", "update", damaged.id, "-", "--yes", input=damaged.configuration())
    assert (code, "is replicated already" in error) == (1, True), error


def until_refused(damaged: Damaged) -> list[dict[str, Any]]:
    def refused() -> list[dict[str, Any]]:
        tables = json.loads(damaged.sluice("table", "list", damaged.id, "-o", "json")[1])
        return [table for table in tables if table["trouble"] == "refused"]

    until(refused, "the rename to be refused")
    return refused()
