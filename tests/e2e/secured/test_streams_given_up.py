"""A user with the privileges of the handbook gives up a read of a change stream, and nothing is left running at the source."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from pymongo import WriteConcern

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position, Window
from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.security import Security
from source.connection import Client, connect
from source.stream.window_reader import WindowReader
from tests.component.source.stream.silent_reader import NOTHING_SLOWLY
from tests.e2e.secured.handbook import create_role
from tests.until import until


def _now(client: Client) -> Position:
    return Position(ClusterTime.from_bson(client.admin.command("ping")["operationTime"]).next())


def _of_user(administrator: Client, user: str) -> list[Any]:
    stages: list[dict[str, Any]] = [
        {"$currentOp": {"allUsers": True, "idleCursors": True}},
        {"$match": {"effectiveUsers.user": user}},
    ]
    operations = list(administrator.admin.aggregate(stages))
    return [each for each in operations if "getMore" in each.get("command", {}) or "changeStream" in str(each)]


def test_a_stream_that_is_given_up_leaves_nothing_where_users_authenticate(tmp_path: Path) -> None:
    members = ReplicaSet("source", tmp_path, tmp_path, size=1, security=Security(tmp_path / "security"))
    with members, members.client() as administrator:
        administrator.admin.command(create_role("sluiceSource", "shop"))
        administrator.admin.command("createUser", "sluice", pwd="secret", roles=["sluiceSource"])
        start = _now(administrator)
        others = administrator["others"].get_collection("rows", write_concern=WriteConcern(1))
        others.insert_many([{"s": "x" * 150} for _ in range(20_000)], ordered=False)
        window = Window(start, _now(administrator))
        with connect(members.uri_of("sluice", "secret")) as reader:
            with closing(WindowReader(reader, NOTHING_SLOWLY).read(window)) as batches:

                def shown() -> list[Any]:
                    """An idle cursor does not say whose it is."""
                    assert next(batches).events == []
                    return _of_user(administrator, "sluice")

                until(shown, "the stream at the source")
            until(lambda: not _of_user(administrator, "sluice"), "the stream's end at the source")
