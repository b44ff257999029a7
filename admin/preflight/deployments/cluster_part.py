"""`part_of_a_cluster`: whether a URI leads to a shard or a config server of a sharded cluster instead of to its routers.

A shard looks like a replica set of its own, but it has only a part of each table, and rows come and go as chunks are moved.
"""

from __future__ import annotations

from typing import Any

from pymongo import DESCENDING, MongoClient
from pymongo.errors import OperationFailure

from source.connection import HELLO
from source.errors import is_refusal

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
