"""Source and target require passwords and TLS, and their users have the privileges that the handbook grants and no others."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from pymongo import MongoClient
from pymongo.errors import WriteError

from admin.way_back.sides import LIFTED_BY
from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.server import Client
from tests.certificates import Certificates
from tests.component.node.server_process import Server
from tests.e2e.secured.handbook import create_role
from tests.e2e.secured.planted_secrets import PlantedSecrets, Told, in_etcd, in_files
from tests.independent_compare import differences
from tests.secured import secured_pair
from tests.until import until

pytestmark = pytest.mark.costly("two replica sets with users and TLS, and a node with Spark")

_DATABASE = "shop"
_USER = "sluice"


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ReplicaSet, ReplicaSet]]:
    directory = tmp_path_factory.mktemp("secured")
    with secured_pair(directory, Certificates(directory).tls("server")) as pair:
        yield pair


def _granted(members: ReplicaSet, role: str, password: str) -> str:
    """The URI of a user with this role of the handbook."""
    with members.client() as administrator:
        administrator.admin.command(create_role(role, _DATABASE))
        administrator.admin.command("createUser", _USER, pwd=password, roles=[role])
    return members.uri_of(_USER, password)


def test_a_node_replicates_with_the_privileges_of_the_handbook_over_tls(
    sets: tuple[ReplicaSet, ReplicaSet], etcd_endpoint: str, tmp_path: Path
) -> None:
    """The source's whole connection string is a secret, and the target's password. Both are replaced while the node runs.

    Nothing that the system writes contains them: what the node logs and serves, etcd, Spark's files.
    """
    source, target = sets
    secrets = PlantedSecrets(tmp_path / "secrets")
    secrets.put("source", _granted(source, "sluiceSource", secrets.new()).removeprefix("mongodb://"))
    secrets.put("target", password := secrets.new())
    sink = _granted(target, "sluiceTarget", password).replace(quote_plus(password), secrets.reference("target"))
    spark = tmp_path / "spark"
    spark.mkdir()
    flags = (
        *("--secret-directories", str(secrets.directory), "--token-file", secrets.tokens(), "--log-format", "console"),
        *("--spark-conf", f"spark.local.dir={spark}"),
    )
    with source.client() as writer, target.client() as reader:
        db = writer[_DATABASE]
        db["orders"].insert_many([{"_id": n} for n in range(500)])
        db["orders"].create_index("a")
        with Server(etcd_endpoint, tmp_path / "log", *flags, name="n1", roles="owner,processor") as node:
            told = Told(node, secrets.operator)
            uris = ("--source", f"mongodb://{secrets.reference('source')}", "--sink", sink)
            created = told.sluice("changefeed", "create", "--id", "secured", *uris, "--tables", f"{_DATABASE}.*")
            assert created.returncode == 0, created.stderr
            until(lambda: reader[_DATABASE]["orders"].count_documents({}) == 500, "the copy")
            _change_everything(writer)
            until(lambda: not differences(writer, _DATABASE, reader, _DATABASE), "equality")
            assert "refused" not in node.log
            for members, name in ((source, "source"), (target, "target")):
                _replace_password(members, name, secrets)
            db["renamed"].insert_many([{"_id": n, "a": 1} for n in range(1000, 1100)])
            db["renamed"].create_index("c")
            until(lambda: not differences(writer, _DATABASE, reader, _DATABASE), "equality with new passwords")
            _see_a_database_of_others(target)
            verified = told.sluice("verify", "secured")
            assert (verified.returncode, "identical" in verified.stdout) == (0, True), verified.stderr
            _cut_over_while_others_write(told, source)
            assert reader[_DATABASE]["renamed"].find_one({"_id": "last"})
            _write_a_password_into_the_configuration(told, source, secrets)
            told.everything()
            _misuse(told, secrets)
            written = {
                "log": node.log.encode(),
                "metrics": node.get("/metrics")[1].encode(),
                "answers": told.text.encode(),
                **in_etcd(etcd_endpoint, f"/sluice/{node.cluster}/"),
                **(in_spark := in_files(spark)),
            }
    assert all(any(id in content for content in in_spark.values()) for id in (b"secured", b"literal")), "no broadcasts"
    info = f"etcd /sluice/{node.cluster}/changefeeds/literal/info"
    assert "literal" in written.pop(info).decode(), (
        "the only place of a password that a user writes into a configuration"
    )
    assert secrets.found_in(written) == []


def _see_a_database_of_others(target: ReplicaSet) -> None:
    """What a sharded target needs shows the names of all databases, and of no tables."""
    with target.client() as administrator:
        administrator["of_others"]["a"].insert_one({})
        administrator.admin.command("grantRolesToUser", _USER, roles=["clusterMonitor"])


def _cut_over_while_others_write(told: Told, members: ReplicaSet) -> None:
    """The privilege to block writers is not in the handbook's role: it is needed at the end only."""
    cut_over = ("changefeed", "finalize", "secured", "--block-writes", "--yes")
    with members.client() as administrator:
        refused = told.sluice(*cut_over)
        assert (refused.returncode, 'grantRolesToUser("sluice", [{role: "backup"' in refused.stderr) == (1, True), (
            refused
        )
        administrator.admin.command("grantRolesToUser", _USER, roles=["backup"])
        administrator.admin.command("createUser", "shop", pwd="shop", roles=["readWriteAnyDatabase"])
        with MongoClient[Any](members.uri_of("shop", "shop")) as shop:
            shop[_DATABASE]["renamed"].insert_one({"_id": "last", "a": 1})
            finished = told.sluice(*cut_over)
            assert finished.returncode == 0, finished.stderr
            assert LIFTED_BY in finished.stdout
            with pytest.raises(WriteError, match="writes blocked"):
                shop[_DATABASE]["renamed"].insert_one({"_id": "later", "a": 1})
            administrator.admin.command({"setUserWriteBlockMode": 1, "global": False})
            shop[_DATABASE]["renamed"].insert_one({"_id": "later", "a": 1})


def _replace_password(members: ReplicaSet, name: str, secrets: PlantedSecrets) -> None:
    """The server forgets its connections, so the new password is needed at once."""
    password = secrets.new()
    with members.client() as administrator:
        administrator.admin.command("updateUser", _USER, pwd=password)
    secrets.put(name, members.uri_of(_USER, password).removeprefix("mongodb://") if name == "source" else password)
    members.members[0].kill()
    members.members[0].start()
    members.wait_for_primary()


def _write_a_password_into_the_configuration(told: Told, members: ReplicaSet, secrets: PlantedSecrets) -> None:
    with members.client() as administrator:
        administrator.admin.command("createUser", "literal", pwd=(password := secrets.new()), roles=["sluiceSource"])
    uris = ("--source", members.uri_of("literal", password), "--sink", "blackhole://")
    created = told.sluice("changefeed", "create", "--id", "literal", *uris, "--tables", f"{_DATABASE}.*")
    assert created.returncode == 0, created.stderr
    until(lambda: " following" in told.sluice("table", "list", "literal").stdout, "the copy")


def _misuse(told: Told, secrets: PlantedSecrets) -> None:
    """Secrets in the wrong places: the driver's own texts would show each of them."""
    wrong = (
        f"mongodb://{secrets.reference('target')}/?serverSelectionTimeoutMS=300",
        f"mongodb+srv://{secrets.reference('alone')}/",
        f"mongodb://{secrets.reference('alone')}/?serverSelectionTimeoutMS=300",
        f"mongodb://{secrets.reference('source')}&serverSelectionTimeoutMS=300&replicaSet={secrets.reference('alone')}",
        f"mongodb://{secrets.reference('unescaped')}",
        f"mongodb://u:{secrets.plain}@127.0.0.1:1/?serverSelectionTimeoutMS=300",
        f"mongodb://u:{secrets.plain}/unescaped@127.0.0.1:1/",
    )
    secrets.put("alone", secrets.new("alone-in-its-file"))
    secrets.put("unescaped", f"sluice:{secrets.new('word/of@mine')}@127.0.0.1:1/")
    for uri in wrong:
        assert told.problems_of({"id": "wrong", "source": uri, "sink": "blackhole://"}), uri
    refused = told.sluice("changefeed", "create", "--id", "wrong", "--source", wrong[0], "--sink", "blackhole://")
    assert refused.returncode == 1, (refused.stdout, refused.stderr)


def _change_everything(writer: Client) -> None:
    """Changes rows, and runs DDL of each kind."""
    db = writer[_DATABASE]
    db.create_collection("capped", capped=True, size=4096)
    db.create_collection("view", viewOn="orders", pipeline=[{"$match": {"a": 1}}])
    db.create_collection("measured", timeseries={"timeField": "at"})
    db["measured"].insert_one({"at": datetime.now(UTC), "a": 1})
    db["measured"].insert_one({"at": datetime.now(UTC), "a": 2})
    db["orders"].update_many({}, {"$set": {"a": 1}})
    db["orders"].delete_one({"_id": 7})
    db["orders"].create_index("b", unique=True, sparse=True)
    db["orders"].drop_index("a_1")
    db.command("collMod", "orders", validator={"a": {"$gte": 0}})
    db["orders"].rename("renamed")
    db["gone"].insert_one({"_id": 1})
    db["gone"].drop()
