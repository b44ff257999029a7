"""`probe_sink`: checks whether a target will accept a changefeed's writes; it writes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from admin.preflight.deployment_identity import DeploymentIdentity, identify
from changefeed.config.configuration import Configuration
from changefeed.errors import SinkRefused, SluiceError
from changefeed.table import TableName
from credentials.expansion import expanded
from sink.mongodb.connection import Client, connect, refused_member
from sink.mongodb.errors import translated
from source.connection import HELLO

_OLDEST = (4, 2)
_SELECTION_MS = 5_000
_WRITING = (
    "find",
    "insert",
    "update",
    "remove",
    "createCollection",
    "dropCollection",
    "createIndex",
    "dropIndex",
    "collMod",
    "listCollections",
    "listIndexes",
)
_KEEPING = ("find", "insert", "update", "remove")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkFindings:
    problems: tuple[str, ...] = ()
    identity: DeploymentIdentity = field(default_factory=DeploymentIdentity)
    version: tuple[int, int] | None = None
    """None for a blackhole, which accepts everything."""


def probe_sink(configuration: Configuration, databases: Collection[str]) -> SinkFindings:
    """`databases` are those that the changefeed will write to."""
    if configuration.sink.scheme == "blackhole":
        return SinkFindings()
    try:
        with closing(connect(_impatient(expanded(configuration.sink)))) as client:
            return _findings(client, databases, configuration.dead_letter)
    except SluiceError as error:
        return SinkFindings(problems=(f"sink: {error}",))


def lacking(configuration: Configuration, tables: Collection[TableName]) -> list[TableName]:
    """The tables of the source that the target does not have; none for a blackhole."""
    if configuration.sink.scheme == "blackhole" or not tables:
        return []
    targets = {name: configuration.routes.target(name) for name in tables}
    databases = {target.db for target in targets.values()}
    with (
        closing(connect(_impatient(expanded(configuration.sink)))) as client,
        translated("listing the sink's tables", SinkRefused),
    ):
        there = {db: set(client[db].list_collection_names()) for db in databases}
    return sorted(name for name, target in targets.items() if target.coll not in there[target.db])


def _findings(client: Client, databases: Collection[str], letters: TableName | None) -> SinkFindings:
    with translated("reading the sink's version and privileges", SinkRefused):
        hello = client.admin.command(HELLO)
        major, minor = client.server_info()["versionArray"][:2]
        status = client.admin.command("connectionStatus", showPrivileges=True)
        identity = identify(client)
    problems: list[str] = []
    if (problem := refused_member(client, hello)) is not None:
        problems.append(f"sink: {problem}")
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        problems.append(
            "sink: it is a standalone server, which cannot acknowledge durable writes; restart it with --replSet and run rs.initiate()"
        )
    if (major, minor) < _OLDEST:
        problems.append(f"sink: it is MongoDB {major}.{minor}; expected 4.2 or later")
    problems += _privilege_problems(status["authInfo"], databases)
    if letters is not None:
        problems += letter_problems(status["authInfo"], letters)
    return SinkFindings(problems=tuple(problems), identity=identity, version=(major, minor))


def _privilege_problems(authenticated: Mapping[str, Any], databases: Collection[str]) -> Iterator[str]:
    """Empty without an authenticated user: such a server has no access control, or it has refused the connection already."""
    if not authenticated.get("authenticatedUsers"):
        return
    privileges = authenticated.get("authenticatedUserPrivileges", ())
    for database in sorted(databases):
        granted = {action for each in privileges if _covers(each["resource"], database) for action in each["actions"]}
        missing = [action for action in _WRITING if action not in granted and "anyAction" not in granted]
        if missing:
            yield f"sink: its user may not {', '.join(missing)} in database {database}; grant it readWrite and dbAdmin there"


def letter_problems(authenticated: Mapping[str, Any], letters: TableName) -> Iterator[str]:
    if not authenticated.get("authenticatedUsers"):
        return
    privileges = authenticated.get("authenticatedUserPrivileges", ())
    granted = {
        action
        for each in privileges
        if _covers(each["resource"], letters.db, letters.coll)
        for action in each["actions"]
    }
    missing = [action for action in _KEEPING if action not in granted and "anyAction" not in granted]
    if missing:
        yield f"dead_letter: the sink's user may not {', '.join(missing)} in {letters}; grant it readWrite in database {letters.db}"


def _covers(resource: Mapping[str, Any], database: str, collection: str = "") -> bool:
    if resource.get("anyResource"):
        return True
    return resource.get("db") in ("", database) and resource.get("collection") in ("", collection)


def _impatient(uri: str) -> str:
    """The URI with a short server selection timeout, because a user waits for the answer."""
    if "serverselectiontimeoutms=" in uri.lower():
        return uri
    head, _, options = uri.partition("?")
    base = head if options or "/" in head.partition("://")[2] else f"{head}/"
    return f"{base}?{options}{'&' if options else ''}serverSelectionTimeoutMS={_SELECTION_MS}"
