"""Users and roles between two servers with authentication, with the privileges that pre-flight asks for and no others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from pymongo.errors import OperationFailure

from admin.preflight.privileges import Privileges, missing_at_sink, missing_at_source
from changefeed.capture import Capture
from changefeed.errors import FencedError
from changefeed.users import PrincipalChanges, PrincipalNames
from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.server import Client
from sink.mongodb.connection import connect as connect_to_target
from sink.mongodb.principals import TargetPrincipals
from source.connection import connect
from source.one_deployment import read_principals
from tests.secured import secured_pair


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ReplicaSet, ReplicaSet]]:
    with secured_pair(tmp_path_factory.mktemp("users")) as pair:
        yield pair


def _missing(client: Client, *, at_source: bool) -> list[str]:
    privileges = Privileges.of(client.admin.command("connectionStatus", showPrivileges=True))
    if at_source:
        found = missing_at_source(privileges, Capture.AUTO, databases=(), others=False, sharded=False, users=True)
    else:
        found = missing_at_sink(privileges, ["shop"], None, users=True)
    return [problem for problem in found if problem.startswith("users: ")]


def test_users_and_roles_become_the_sources(sides: tuple[ReplicaSet, ReplicaSet]) -> None:
    source, target = sides
    with source.client() as administrator, target.client() as other:
        administrator.admin.command("createUser", "sluice", pwd="at the source", roles=[])
        other.admin.command("createUser", "sluice", pwd="at the target", roles=["readWriteAnyDatabase"])
        other.admin.command("createUser", "theirs", pwd="x", roles=["read"])
        reader = connect(source.uri_of("sluice", "at the source"))
        writer = connect_to_target(target.uri_of("sluice", "at the target"))
        for client, at_source, role in ((reader, True, "backup"), (writer, False, "restore")):
            [problem] = _missing(client, at_source=at_source)
            assert f'grantRolesToUser("sluice", [{{role: "{role}", db: "admin"}}])' in problem
            (administrator if at_source else other).admin.command("grantRolesToUser", "sluice", roles=[role])
            assert _missing(client, at_source=at_source) == []

        def copied(written: PrincipalNames) -> PrincipalChanges:
            there = read_principals(reader)
            ends = TargetPrincipals(lambda: nullcontext(writer), lambda: 30.0)
            changes = PrincipalChanges.between(there, ends.read(there.roles.keys() | written.roles), written)
            ends.apply(changes)
            after = PrincipalChanges.between(there, ends.read(there.roles.keys() | written.roles), written)
            assert not after.any, "what was written is read as the same"
            return changes

        finding = {"resource": {"db": "shop", "collection": ""}, "actions": ["find", "collStats"]}
        local = [{"clientSource": ["127.0.0.1"], "serverAddress": ["127.0.0.1"]}]
        administrator.shop.command("createRole", "clerk", privileges=[finding], roles=[])
        administrator.shop.command(
            "createRole", "head", privileges=[], roles=["clerk"], authenticationRestrictions=local
        )
        administrator.shop.command("createUser", "ann", pwd="one", roles=["head"], customData={"number": 5})
        first = copied(PrincipalNames())
        assert set(first.new_roles) == {"shop.clerk", "shop.head"}
        with connect_to_target(f"{target.uri_of('ann', 'one')}&authSource=shop") as ann:
            assert ann.shop.orders.find_one() is None
            with pytest.raises(OperationFailure):
                ann.shop.orders.insert_one({})
        administrator.shop.command("updateUser", "ann", pwd="two")
        administrator.shop.command("updateRole", "clerk", privileges=[{**finding, "actions": ["find", "insert"]}])
        second = copied(first.written)
        assert ([user["_id"] for user in second.users], len(second.roles)) == (["shop.ann"], 1)
        with connect_to_target(f"{target.uri_of('ann', 'two')}&authSource=shop") as ann:
            ann.shop.orders.insert_one({})
        administrator.shop.command("dropUser", "ann")
        administrator.shop.command("dropRole", "head")
        third = copied(second.written)
        assert third.dropped == PrincipalNames(users=frozenset({"shop.ann"}), roles=frozenset({"shop.head"}))
        left = {user["_id"] for user in other.admin["system.users"].find({})}
        assert {"admin.sluice", "admin.theirs"} <= left
        assert "shop.ann" not in left
        with pytest.raises(FencedError):
            TargetPrincipals(lambda: nullcontext(writer), lambda: 0.0).apply(first)
        reader.close()
        writer.close()
