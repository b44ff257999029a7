"""The connection to a MongoDB target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from pymongo import MongoClient
from pymongo.errors import InvalidURI

from changefeed.config.direct_connection import not_the_primary
from changefeed.config.read_preference import refused_at_target
from changefeed.errors import ConfigurationError, SinkRefused
from sink.mongodb.errors import translated

Client: TypeAlias = MongoClient[dict[str, Any]]

_DEFAULTS: Mapping[str, Any] = {"appname": "sluice", "serverSelectionTimeoutMS": 5_000, "connectTimeoutMS": 5_000}


def connect(uri: str) -> Client:
    """Opens nothing yet: an unreachable target shows at the first command.

    There is no time limit on a socket: a command may run for hours, and TCP keep-alive and the driver's monitor find a dead
    server. What the connection string says is stronger than what stands here, but for the member that is read: the primary.
    """
    if (problem := refused_at_target(uri)) is not None:
        raise ConfigurationError([f"sink: its connection string: {problem}"])
    said = uri.partition("?")[2].lower()
    options = {name: value for name, value in _DEFAULTS.items() if f"{name.lower()}=" not in said}
    with translated("connecting to the sink", SinkRefused):
        try:
            return MongoClient(uri, **options)
        except (InvalidURI, ValueError):
            # The driver's text shows the part that it could not read, which may hold a password: not even the cause is kept.
            raise ConfigurationError(
                ["sink: its connection string cannot be read; percent-escape user and password"]
            ) from None


def is_sharded(client: Client) -> bool:
    """Whether a router answers, behind which tables are sharded as the source's are."""
    with translated("asking the target who it is", SinkRefused):
        return bool(client.admin.command("hello").get("msg") == "isdbgrid")


def refused_member(client: Client, hello: Mapping[str, Any]) -> str | None:
    """Where the connection string allows one member only."""
    return not_the_primary(hello) if client.topology_description.topology_type_name == "Single" else None
