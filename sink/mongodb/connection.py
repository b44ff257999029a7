"""The connection to a MongoDB target."""

from __future__ import annotations

from typing import Any, TypeAlias

from pymongo import MongoClient

from changefeed.errors import ConfigurationError, SinkRefused
from sink.mongodb.errors import translated

Client: TypeAlias = MongoClient[dict[str, Any]]

SELECTION_MS = 10_000


def connect(uri: str) -> Client:
    """Opens nothing yet: an unreachable target shows at the first command.

    There is no time limit on a socket: a command may run for hours, and TCP keep-alive and the driver's monitor find a dead
    server. What the connection string says is stronger than what stands here.
    """
    try:
        with translated("connecting to the sink", SinkRefused):
            return MongoClient(
                uri, appname="sluice", serverSelectionTimeoutMS=SELECTION_MS, connectTimeoutMS=SELECTION_MS
            )
    except ValueError as error:
        # The driver's text would show the part that it could not read, which may hold a password.
        raise ConfigurationError(
            ["sink: its connection string cannot be read; percent-escape user and password"]
        ) from error
