"""`DeploymentIdentity`: whether two URIs lead to the same deployment, even by different names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pymongo import MongoClient
from pymongo.errors import OperationFailure

from source.connection import HELLO

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
