"""Definitions beyond etcd's limits are copied and followed by a real node, with the rows of their tables."""

from __future__ import annotations

import json
from typing import Any

import yaml
from pymongo import IndexModel

from devstack.mongodb.server import Client
from tests.component.node.server_process import Server
from tests.component.owner.test_ddl_kinds import options
from tests.component.owner.test_large_definitions import choice, filter_of
from tests.until import until


def test_large_definitions_are_copied_and_followed(
    node: Server, database: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client
) -> None:
    source, target = source_client[database], target_client[f"{database}_to"]
    loose: dict[str, Any] = {"$or": [{"a": 1}, choice("b", 2_500_000)]}
    source.create_collection("strict", validator=loose)
    source.create_collection("seen", viewOn="strict", pipeline=[{"$match": choice("c", 2_500_000)}])
    source["strict"].insert_many([{"_id": number, "a": 1} for number in range(100)])
    source["many"].insert_one({"_id": 1})
    filters = {f"f{number}": choice(f"f{number}", 40_000) for number in range(20)}
    source["many"].create_indexes([IndexModel(name, partialFilterExpression=said) for name, said in filters.items()])
    configuration = {
        "id": database,
        "source": source_uri,
        "sink": target_uri,
        "filter": {"tables": [f"{database}.*"]},
        "routes": [{"from": f"{database}.*", "to": f"{database}_to.*"}],
    }
    created = node.sluice("changefeed", "create", "-", input=yaml.safe_dump(configuration))
    assert created.returncode == 0, created.stderr
    until(lambda: target["strict"].count_documents({}) == 100 and filter_of(target, "many", "f19_1"), "the copy")
    assert options(target, "strict") == options(source, "strict")
    until(lambda: "seen" in target.list_collection_names(), "the view")
    assert options(target, "seen") == options(source, "seen")
    source["strict"].create_index("a", partialFilterExpression=choice("a", 1_600_000))
    source.command("collMod", "strict", validator={"$or": [{"a": 1}, choice("d", 900_000)]})
    source["strict"].insert_one({"_id": "after", "a": 1})
    until(lambda: target["strict"].find_one({"_id": "after"}) is not None, "a row behind both")
    assert options(target, "strict") == options(source, "strict")
    assert filter_of(target, "strict", "a_1") == choice("a", 1_600_000)
    listed = node.sluice("ddl", "list", database, "-o", "json").stdout
    assert [ddl["state"] for ddl in json.loads(listed)] == ["done", "done"]
    assert len(listed) < 10_000
    assert node.sluice("changefeed", "remove", database, "--yes").returncode == 0
