"""`identify`, `part_of_a_cluster`: which deployment a URI leads to, by whatever name, and whether that is a shard or config server of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pymongo import DESCENDING, MongoClient
from pymongo.errors import OperationFailure

from source.connection import HELLO
from source.errors import is_refusal

_UNREADABLE = frozenset({13, 59, 76, 93, 94})
"""Unauthorized, CommandNotFound, NoReplicationEnabled, InvalidReplicaSetConfig, NotYetInitialized."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentIdentity:
    id: str | None = None
    """The id of the replica set or of the sharded cluster; None if the user may not read it."""
    members: frozenset[tuple[str, str]] = field(default_factory=frozenset)
    """The set's name with each address of a member, as the set reports it."""

    def same(self, other: DeploymentIdentity) -> bool:
        if self.id is not None and other.id is not None:
            return self.id == other.id
        return bool(self.members & other.members)


def identify(client: MongoClient[dict[str, Any]]) -> DeploymentIdentity:
    """Raises the driver's errors."""
    hello = client.admin.command(HELLO)
    name = str(hello.get("setName", hello.get("msg", "")))
    addresses = [*hello.get("hosts", ()), *([hello["me"]] if "me" in hello else [])]
    members = frozenset((name, str(address).lower()) for address in addresses)
    return DeploymentIdentity(id=_id(client, sharded=hello.get("msg") == "isdbgrid"), members=members)


def _id(client: MongoClient[dict[str, Any]], *, sharded: bool) -> str | None:
    try:
        if sharded:
            version = client["config"]["version"].find_one({}) or {}
            return str(version["clusterId"]) if "clusterId" in version else None
        settings = client.admin.command("replSetGetConfig")["config"].get("settings", {})
    except OperationFailure as error:
        if error.code in _UNREADABLE:
            return None
        raise
    return str(settings["replicaSetId"]) if "replicaSetId" in settings else None


_SHARD = "shardsvr"


def part_of_a_cluster(client: MongoClient[dict[str, Any]]) -> str | None:
    """The problem, if it is one. Raises the driver's errors."""
    hello = client.admin.command(HELLO)
    if hello.get("configsvr"):
        part = "a config server of a sharded cluster"
    elif "setName" in hello and _is_shard(client):
        part = f"{hello['setName']}, a shard of a sharded cluster"
    else:
        return None
    return f"it is {part}, which is not a deployment of its own; name the cluster's routers (mongos)"


def _is_shard(client: MongoClient[dict[str, Any]]) -> bool:
    """A user may lack the privilege for the first question, and may have the one for the second: `read` on `local`. If both are refused, no."""
    for ask in (_sharding_state, _command_line):
        try:
            return ask(client)
        except OperationFailure as error:
            if not is_refusal(error):
                raise
    return False


def _sharding_state(client: MongoClient[dict[str, Any]]) -> bool:
    return bool(client.admin.command("shardingState").get("enabled"))


def _command_line(client: MongoClient[dict[str, Any]]) -> bool:
    started = client["local"]["startup_log"].find_one({}, sort=[("$natural", DESCENDING)]) or {}
    role = started.get("cmdLine", {}).get("sharding", {}).get("clusterRole")
    return bool(role == _SHARD)
