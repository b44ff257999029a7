"""A replica set of three with users, a key file and TLS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pymongo.errors import OperationFailure, ServerSelectionTimeoutError

from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.security import Security
from devstack.mongodb.server import Client
from tests.certificates import Certificates

pytestmark = pytest.mark.soak  # every test that uses it would see its faults, too


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    directory = tmp_path_factory.mktemp("rs")
    security = Security(directory / "security", Certificates(directory).tls("server"))
    with ReplicaSet("rs", directory, directory, election_timeout_ms=2_000, security=security) as started:
        yield started


def test_only_who_has_a_password_may_read(members: ReplicaSet) -> None:
    with members.client() as administrator:
        administrator["shop"]["rows"].insert_one({"_id": 1})
        administrator.admin.command("createUser", "reader", pwd="p@ss/word", roles=[{"role": "read", "db": "shop"}])
    with Client(members.uri) as stranger, pytest.raises(OperationFailure, match="requires authentication"):
        stranger["shop"]["rows"].find_one()
    with Client(members.uri_of("reader", "p@ss/word")) as reader:
        assert reader["shop"]["rows"].find_one() == {"_id": 1}
        with pytest.raises(OperationFailure, match="not authorized"):
            reader["shop"]["rows"].insert_one({"_id": 2})


def test_nobody_connects_without_tls_or_with_a_ca_of_his_own(members: ReplicaSet, tmp_path: Path) -> None:
    address = members.members[0].address
    other = Certificates(tmp_path).ca
    for options in ("", f"&tls=true&tlsCAFile={other}"):
        uri = f"mongodb://{address}/?directConnection=true&serverSelectionTimeoutMS=500{options}"
        with Client(uri) as stranger, pytest.raises(ServerSelectionTimeoutError):
            stranger.admin.command("ping")


def test_the_next_primary_lets_the_same_users_in(members: ReplicaSet) -> None:
    old = members.primary()
    old.kill()
    assert members.wait_for_primary() is not old
    with members.client() as administrator:
        administrator["shop"]["rows"].insert_one({"_id": "after"})
    old.start()
    members.wait_until_whole()
