"""Collections whose names the driver refuses and servers accept are copied, followed, changed, compared, repaired and copied anew."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
import yaml
from pymongo.errors import OperationFailure

from devstack.mongodb.server import Client
from tests.component.node.server_process import Server
from tests.until import until

_NAMES = ("a..b", "ends.", "two...dots")


class Side:
    """One database, by plain commands."""

    def __init__(self, client: Client, db: str) -> None:
        self.db = client[db]

    def run(self, verb: str, name: str, **more: Any) -> Any:
        return self.db.command({verb: name, **more})

    def write(self, name: str, *documents: dict[str, Any]) -> None:
        self.run("insert", name, documents=list(documents))

    def rows(self, name: str) -> list[dict[str, Any]]:
        return list(self.run("find", name, sort={"_id": 1}, batchSize=10_000)["cursor"]["firstBatch"])

    def indexes(self, name: str) -> set[str]:
        try:
            return {index["name"] for index in self.run("listIndexes", name)["cursor"]["firstBatch"]}
        except OperationFailure:
            return set()

    def names(self) -> set[str]:
        return set(self.db.list_collection_names())


@pytest.mark.costly("three tables are copied, changed, compared, repaired and copied anew, by each capture")
@pytest.mark.parametrize("capture", ["oplog", "change_stream"])
def test_such_a_table_is_replicated_like_any_other(
    node: Server,
    database: str,
    source_uri: str,
    target_uri: str,
    source_client: Client,
    target_client: Client,
    capture: str,
) -> None:
    def sluice(*arguments: str, input: str | None = None) -> str:
        answer = node.sluice(*arguments, input=input)
        assert answer.returncode == 0, f"sluice {' '.join(arguments)}: {answer.stderr}{answer.stdout}"
        return answer.stdout

    def equal(name: str) -> bool:
        return source.rows(name) == target.rows(name) and source.indexes(name) == target.indexes(name)

    def states() -> set[str]:
        return {table["state"] for table in json.loads(sluice("table", "list", database, "-o", "json"))}

    source, target = Side(source_client, database), Side(target_client, database)
    for name in _NAMES:
        source.write(name, *({"_id": number, "n": number} for number in range(1000)))
    indexes = [{"key": {"n": 1}, "name": "n_1", "unique": True}]
    source.run("createIndexes", "a..b", indexes=indexes)
    feed = {"id": database, "source": source_uri, "sink": target_uri, "filter": {"tables": [f"{database}.*"]}}
    sluice("changefeed", "create", "-", input=yaml.safe_dump({**feed, "capture": capture}))
    try:
        for name in _NAMES:
            until(partial(equal, name), f"the copy of {name}")
            source.write(name, {"_id": "more", "n": -1})
            source.run("update", name, updates=[{"q": {"_id": 7}, "u": {"$set": {"added": {"x": 1}}}}])
            source.run("delete", name, deletes=[{"q": {"_id": 8}, "limit": 1}])
            until(partial(equal, name), f"the changes of {name}")
        source.write("later..made", {"_id": 1})
        source.run("createIndexes", "ends.", indexes=indexes)
        source.run("collMod", "a..b", validator={"n": {"$exists": True}}, validationLevel="moderate")
        full = f"{database}.two...dots"
        source_client.admin.command({"renameCollection": full, "to": f"{database}.other..name"})
        until(lambda: target.names() >= {"later..made", "other..name"}, "the DDL")
        for name in ("a..b", "ends.", "later..made", "other..name"):
            until(partial(equal, name), f"{name} after the DDL")
        assert "two...dots" not in target.names()
        assert "identical" in sluice("verify", database)

        target.run("delete", "a..b", deletes=[{"q": {"_id": {"$lt": 5}}, "limit": 0}])
        sluice("verify", database, "--repair")
        assert equal("a..b")

        target.run("delete", "ends.", deletes=[{"q": {"_id": {"$lt": 5}}, "limit": 0}])
        sluice("table", "recopy", database, f"{database}.ends.", "--yes")
        until(lambda: equal("ends."), "the table that is copied anew")
        source.run("drop", "a..b")
        until(lambda: "a..b" not in target.names(), "the drop")
        until(lambda: states() == {"following"}, "all tables to follow", lambda: f"{states()}")
    finally:
        node.sluice("changefeed", "remove", database, "--yes")
