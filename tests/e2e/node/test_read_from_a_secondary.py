"""A whole changefeed on secondaries: copy, rows, transactions and DDL are read there and not at the primary, also when one of them dies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.server import Client, MongoDB
from tests.component.node.server_process import Server
from tests.conftest import ReplicaSets
from tests.e2e.node.workload import writing
from tests.independent_compare import differences
from tests.until import until

pytestmark = pytest.mark.soak

_APP = "sluice-on-a-secondary"
_READS = {"find", "getMore", "aggregate", "listCollections", "listIndexes"}


def _reads(member: MongoDB) -> list[str]:
    """Our reads, as the member's log has them."""
    lines = [line for line in member.log.read_text(encoding="utf-8").splitlines() if _APP in line]
    attributes = [json.loads(line).get("attr", {}) for line in lines]
    commands = [found["command"] for found in attributes if found.get("appName") == _APP and "command" in found]
    return [str(command)[:300] for command in commands if next(iter(command)) in _READS]


def _change(source: Client, database: str) -> None:
    db = source[database]
    db["orders"].create_index("a")
    with source.start_session() as session, session.start_transaction():
        for number in range(50):
            db["orders"].insert_one({"_id": f"t{number}", "a": number}, session=session)
            db["items"].update_one({"_id": number}, {"$set": {"part": number}}, session=session)
    db["items"].rename("goods")
    db["goods"].insert_one({"_id": "after the rename"})
    db["extra"].insert_one({"_id": 1})
    db["extra"].drop()


def _set_up(members: ReplicaSet, database: str) -> None:
    with members.client() as client:
        for table in ("orders", "items"):
            client[database][table].insert_many([{"_id": n, "a": n, "text": "x" * 500} for n in range(2000)])
    members.wait_until_whole()
    for member in members.members:
        with member.client() as client:
            client.admin.command("profile", 0, slowms=-1)


def test_a_changefeed_reads_the_secondaries_alone(
    own_replica_set: ReplicaSets,
    etcd_endpoint: str,
    target_uri: str,
    target_client: Client,
    tmp_path: Path,
    database: str,
) -> None:
    members = own_replica_set("rs")
    _set_up(members, database)
    primary = members.primary()
    uri = f"{members.uri}&readPreference=secondary&appName={_APP}"
    feed: dict[str, object] = {"id": database, "source": uri, "sink": target_uri, "capture": "oplog"}
    feed |= {"filter": {"tables": [f"{database}.*"]}}
    with (
        Server(etcd_endpoint, tmp_path / "log", name="n1", roles="owner,processor") as node,
        members.client() as source,
    ):
        created = node.sluice("changefeed", "create", "-", input=yaml.safe_dump(feed))
        assert created.returncode == 0, created.stderr

        def equal() -> bool:
            return not differences(source, database, target_client, database)

        with writing(source[database], ["counters"]) as stop:
            until(
                lambda: target_client[database]["counters"].find_one({"_id": {"$gte": 200}}),
                "the copy and what follows",
            )
            _change(source, database)
            until(lambda: target_client[database]["goods"].find_one({"_id": "after the rename"}), "the rename")
            assert _reads(primary) == []
            max(members.secondaries(), key=lambda member: len(_reads(member))).kill()
            source[database]["goods"].insert_one({"_id": "read from the other"})
            until(lambda: target_client[database]["goods"].find_one({"_id": "read from the other"}), "the other member")
            source[database]["goods"].rename("wares")
            stop()
        until(equal, "equality")
        assert members.primary() is primary
        assert _reads(primary) == []
        verified = node.sluice("verify", database)
        assert "identical" in verified.stdout, verified.stderr
