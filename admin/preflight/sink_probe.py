"""`probe_sink`: checks whether a target will accept a changefeed's writes. It writes nothing to a MongoDB, and leaves a directory empty."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

from admin.preflight.deployment import DeploymentIdentity, identify, part_of_a_cluster
from admin.preflight.privileges import Privileges, missing_identity
from changefeed.config.configuration import Configuration
from changefeed.errors import SinkRefused, SluiceError
from changefeed.table import TableName
from credentials.secrets import expanded
from sink.mongodb.connection import Client, connect, holds_documents, refused_member
from sink.mongodb.target_errors import translated
from sink.opening import open_sink
from source.connection import HELLO

_OLDEST = (4, 2)
_SELECTION_MS = 5_000
_THREADS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkFindings:
    problems: tuple[str, ...] = ()
    identity: DeploymentIdentity = field(default_factory=DeploymentIdentity)
    version: tuple[int, int] | None = None
    """None for a blackhole, which accepts everything."""
    privileges: Privileges | None = None
    """None if the sink does not answer."""
    sharded: bool = False

    @property
    def identity_lacks(self) -> str:
        """The privilege without which no update can prove that it names this sink."""
        lacking = self.identity.id is None and self.privileges is not None and not self.sharded
        return missing_identity(self.privileges) if lacking and self.privileges is not None else ""


def probe_sink(configuration: Configuration) -> SinkFindings:
    if not configuration.sink_traits.keeps_documents:
        return SinkFindings(problems=tuple(_unusable_event_sink(configuration)))
    try:
        with closing(connect(impatient(expanded(configuration.sink)))) as client:
            return _findings(client)
    except SluiceError as error:
        return SinkFindings(problems=(f"sink: {error}",))


def _unusable_event_sink(configuration: Configuration) -> Iterator[str]:
    try:
        open_sink(configuration).check()
    except SluiceError as error:
        yield f"sink: {error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTables:
    """Of the tables that a changefeed will write, those that the target does not have, and those that have documents there."""

    missing: frozenset[TableName] = frozenset()
    occupied: frozenset[TableName] = frozenset()


def look_at_tables(configuration: Configuration, tables: Collection[TableName]) -> TargetTables:
    """`tables` are the target's. A blackhole has all of them, empty."""
    if not configuration.sink_traits.keeps_documents or not tables:
        return TargetTables()
    with (
        closing(connect(impatient(expanded(configuration.sink)))) as client,
        translated("looking at the sink's tables", SinkRefused),
        ThreadPoolExecutor(_THREADS, "occupied") as threads,
    ):
        names = {db: set(client[db].list_collection_names()) for db in {table.db for table in tables}}
        there = [table for table in tables if table.coll in names[table.db]]
        filled = threads.map(partial(holds_documents, client), there)
        occupied = frozenset(table for table, full in zip(there, filled, strict=True) if full)
    return TargetTables(missing=frozenset(tables) - frozenset(there), occupied=occupied)


def _findings(client: Client) -> SinkFindings:
    with translated("reading the sink's version and privileges", SinkRefused):
        hello = client.admin.command(HELLO)
        major, minor = client.server_info()["versionArray"][:2]
        status = client.admin.command("connectionStatus", showPrivileges=True)
        identity = identify(client)
        part = part_of_a_cluster(client)
    problems = [f"sink: {part}"] if part is not None else []
    if (problem := refused_member(client, hello)) is not None:
        problems.append(f"sink: {problem}")
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        problems.append(
            "sink: it is a standalone server, which cannot acknowledge durable writes; restart it with --replSet and run rs.initiate()"
        )
    if (major, minor) < _OLDEST:
        problems.append(f"sink: it is MongoDB {major}.{minor}; expected 4.2 or later")
    privileges = Privileges.of(status)
    return SinkFindings(
        problems=tuple(problems),
        identity=identity,
        version=(major, minor),
        privileges=privileges,
        sharded=hello.get("msg") == "isdbgrid",
    )


def identify_sink(configuration: Configuration) -> str:
    """Empty if it does not answer, or the user may not read it."""
    if not configuration.sink_traits.keeps_documents:
        return ""
    try:
        with (
            closing(connect(impatient(expanded(configuration.sink)))) as client,
            translated("reading the sink's identity", SinkRefused),
        ):
            return identify(client).id or ""
    except SluiceError:
        return ""


def impatient(uri: str) -> str:
    """The URI with a short server selection timeout, because a user waits for the answer."""
    if "serverselectiontimeoutms=" in uri.lower():
        return uri
    head, _, options = uri.partition("?")
    base = head if options or "/" in head.partition("://")[2] else f"{head}/"
    return f"{base}?{options}{'&' if options else ''}serverSelectionTimeoutMS={_SELECTION_MS}"
