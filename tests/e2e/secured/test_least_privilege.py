"""Source and target require passwords and TLS, and their users have the privileges that the handbook grants and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.security import Security
from devstack.mongodb.server import Client
from devstack.process import side_by_side
from tests.certificates import Certificates
from tests.component.node.server_process import Server
from tests.e2e.node.workload import until
from tests.e2e.secured.handbook import create_role
from tests.independent_compare import differences

_DATABASE = "shop"
_USER, _PASSWORD = "sluice", "p@ss/word:?"  # characters that a URI must escape


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ReplicaSet, ReplicaSet]]:
    """One member each, as three authenticate users in the same way (`test_secured_replica_set.py`)."""
    directory = tmp_path_factory.mktemp("secured")
    tls = Certificates(directory).tls("server")
    source, target = (
        ReplicaSet(name, directory, directory, size=1, security=Security(directory / f"{name}-security", tls))
        for name in ("source", "target")
    )
    side_by_side([source.start, target.start])
    yield source, target
    side_by_side([source.stop, target.stop])


def _granted(members: ReplicaSet, role: str) -> str:
    """The URI of a user with this role of the handbook."""
    with members.client() as administrator:
        administrator.admin.command(create_role(role, _DATABASE))
        administrator.admin.command("createUser", _USER, pwd=_PASSWORD, roles=[role])
    return members.uri_of(_USER, _PASSWORD)


def test_a_node_replicates_with_the_privileges_of_the_handbook_over_tls(
    sets: tuple[ReplicaSet, ReplicaSet], etcd_endpoint: str, tmp_path: Path
) -> None:
    source, target = sets
    source_uri, target_uri = _granted(source, "sluiceSource"), _granted(target, "sluiceTarget")
    with source.client() as writer, target.client() as reader:
        db = writer[_DATABASE]
        db["orders"].insert_many([{"_id": n} for n in range(500)])
        db["orders"].create_index("a")
        with Server(etcd_endpoint, tmp_path / "log", name="n1", roles="owner,processor") as node:
            flags = ("--source", source_uri, "--sink", target_uri, "--tables", f"{_DATABASE}.*")
            created = node.sluice("changefeed", "create", "--id", "secured", *flags)
            assert created.returncode == 0, created.stderr
            until(lambda: reader[_DATABASE]["orders"].count_documents({}) == 500, "the copy")
            _change_everything(writer)
            until(lambda: not differences(writer, _DATABASE, reader, _DATABASE), "equality")
            verified = node.sluice("verify", "secured")
            assert (verified.returncode, "identical" in verified.stdout) == (0, True), verified.stderr
            assert _PASSWORD not in node.log
            assert "refused" not in node.log


def _change_everything(writer: Client) -> None:
    """Changes rows, and runs DDL of each kind."""
    db = writer[_DATABASE]
    db.create_collection("capped", capped=True, size=4096)
    db.create_collection("view", viewOn="orders", pipeline=[{"$match": {"a": 1}}])
    db.create_collection("measured", timeseries={"timeField": "at"})
    db["orders"].update_many({}, {"$set": {"a": 1}})
    db["orders"].delete_one({"_id": 7})
    db["orders"].create_index("b", unique=True, sparse=True)
    db["orders"].drop_index("a_1")
    db.command("collMod", "orders", validator={"a": {"$gte": 0}})
    db["orders"].rename("renamed")
    db["gone"].insert_one({"_id": 1})
    db["gone"].drop()
