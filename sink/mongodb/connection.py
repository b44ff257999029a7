"""`connect`: the client of a MongoDB target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from pymongo import MongoClient

from changefeed.config.uri import not_the_primary, refused_at_target
from changefeed.errors import ConfigurationError, SinkRefused
from changefeed.table import TableName
from credentials.clients import open_client
from sink.mongodb.errors import translated

Client: TypeAlias = MongoClient[dict[str, Any]]

_DEFAULTS: Mapping[str, Any] = {"appname": "sluice", "serverSelectionTimeoutMS": 5_000, "connectTimeoutMS": 5_000}


def connect(uri: str) -> Client:
    """Does not connect yet: the first command reports an unreachable target.

    There is no time limit on a socket: a command may run for hours, and TCP keep-alive and the driver's monitor detect a dead
    server. The connection string overrides these defaults; a read preference other than the primary is refused.
    """
    if (problem := refused_at_target(uri)) is not None:
        raise ConfigurationError([f"sink: its connection string: {problem}"])
    said = uri.partition("?")[2].lower()
    options = {name: value for name, value in _DEFAULTS.items() if f"{name.lower()}=" not in said}
    return open_client("sink", uri, **options)


def is_sharded(client: Client) -> bool:
    """Whether the target is a router; its tables are then sharded like the source's."""
    with translated("reading the target's hello", SinkRefused):
        return bool(client.admin.command("hello").get("msg") == "isdbgrid")


def refused_member(client: Client, hello: Mapping[str, Any]) -> str | None:
    """Why a member is refused, if the connection string allows one member only."""
    return not_the_primary(hello) if client.topology_description.topology_type_name == "Single" else None


def holds_documents(client: Client, name: TableName) -> bool:
    """By a plain command: servers have collections whose names the driver refuses, such as `a..b`."""
    find = {"find": name.coll, "projection": {"_id": 1}, "limit": 1, "singleBatch": True}
    return bool(client[name.db].command(find)["cursor"]["firstBatch"])
