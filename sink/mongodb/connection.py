"""`connect`: the client of a MongoDB target, and what the target says about itself: whether it is a router, and how far its majority is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import pymongo
from bson.errors import BSONError
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from changefeed.cluster_time import ClusterTime, MajorityPoint
from changefeed.config.uri import not_the_primary, refused_at_target
from changefeed.documents.document import DICT, Document
from changefeed.errors import ConfigurationError, SinkMajorityStalled, SinkRefused
from changefeed.table import TableName
from credentials.clients import Renewed, open_client
from sink.mongodb.delivery import PromptDelivery
from sink.mongodb.target_errors import answer_of, translated

Client: TypeAlias = MongoClient[dict[str, Any]]
Clients: TypeAlias = Client | Renewed[Client]

_DEFAULTS: Mapping[str, Any] = {"appname": "sluice", "serverSelectionTimeoutMS": 5_000, "connectTimeoutMS": 5_000}
LATE = frozenset({50, 64})
"""MaxTimeMSExpired and WriteConcernFailed, as write concern errors: the primary has the write, its majority does not have it."""

_LONGEST_LOOK_SECONDS = 2.0
_NAMESPACE_NOT_FOUND = 26


def connect(uri: str) -> Client:
    """Does not connect yet: the first command reports an unreachable target.

    There is no time limit on an answer: a command may run for hours, and TCP keep-alive and the driver's monitor detect a dead
    server. The connection string overrides these defaults; a read preference other than the primary is refused.
    """
    if (problem := refused_at_target(uri)) is not None:
        raise ConfigurationError([f"sink: its connection string: {problem}"])
    said = uri.partition("?")[2].lower()
    options = {name: value for name, value in _DEFAULTS.items() if f"{name.lower()}=" not in said}
    return open_client("sink", uri, PromptDelivery(), **options)


def present(clients: Clients) -> Client:
    """With the credentials of now."""
    return clients.get() if isinstance(clients, Renewed) else clients


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


def listed(client: Client, db: str, command: str, value: str | int = 1, **options: Any) -> Iterator[dict[str, Any]]:
    """By a plain command: the driver's helpers cannot decode every date that a definition may contain. Later batches are decoded as their database is."""
    database = client.get_database(db, codec_options=DICT)
    return database.cursor_command(command, value, codec_options=DICT, **options)


def listed_indexes(client: Client, name: TableName) -> tuple[Document, ...]:
    try:
        return tuple(map(Document.of, listed(client, name.db, "listIndexes", name.coll)))
    except OperationFailure as error:
        if error.code != _NAMESPACE_NOT_FOUND:
            raise
        return ()


def majority_point(client: Client) -> MajorityPoint | None:
    """None for a router. Raises the driver's errors."""
    with pymongo.timeout(_LONGEST_LOOK_SECONDS):
        return MajorityPoint.of_hello(client.admin.command("hello"))


def stalled(client: Client, doing: str) -> SinkMajorityStalled:
    """The error for a write that the primary applied and the majority did not acknowledge."""
    try:
        point = majority_point(client)
    except (PyMongoError, BSONError) as error:
        return _stalled(doing, f"its primary did not report how far its majority is: {answer_of(error)}")
    return stalled_at(point, doing)


def stalled_at(point: MajorityPoint | None, doing: str) -> SinkMajorityStalled:
    if point is None:
        return _stalled(doing, "a shard's majority has not acknowledged it; look for members that are down")
    return _stalled(doing, str(point) if point.behind else "its majority was late, and has caught up since")


def write_time(reply: Mapping[str, Any]) -> tuple[ClusterTime, int] | None:
    """The time and term of the primary's write, from its reply; a router's reply has neither."""
    at = reply.get("opTime")
    return (ClusterTime.from_bson(at["ts"]), int(at["t"])) if isinstance(at, Mapping) else None


def _stalled(doing: str, why: str) -> SinkMajorityStalled:
    return SinkMajorityStalled(f"{doing}: not durable at the target yet: {why}")
