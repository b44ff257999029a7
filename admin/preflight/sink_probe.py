"""`probe_sink`: checks whether a target will accept a changefeed's writes. It writes nothing to a MongoDB, and leaves a directory empty."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from admin.preflight.deployment import DeploymentIdentity, identify, part_of_a_cluster
from admin.preflight.privileges import Privileges, missing_identity
from changefeed.config.configuration import Configuration
from changefeed.errors import SinkRefused, SluiceError
from changefeed.table import TableName
from sink.mongodb.connection import Client, holds_documents, refused_member
from sink.mongodb.target_errors import translated
from sink.opening import cluster_id, open_sink, target_client
from source.connection import HELLO

_OLDEST = (4, 2)
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
    try:
        with target_client(configuration) as client:
            if client is not None:
                return _findings(client)
            open_sink(configuration).check()
            return SinkFindings(identity=DeploymentIdentity(id=cluster_id(configuration) or None))
    except SluiceError as error:
        return SinkFindings(problems=(f"sink: {error}",))


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTables:
    """Of the tables that a changefeed will write, those that the target does not have, and those that have documents there."""

    missing: frozenset[TableName] = frozenset()
    occupied: frozenset[TableName] = frozenset()


def look_at_tables(configuration: Configuration, tables: Collection[TableName]) -> TargetTables:
    """`tables` are the target's. A blackhole has all of them, empty."""
    with (
        target_client(configuration) as client,
        translated("looking at the sink's tables", SinkRefused),
        ThreadPoolExecutor(_THREADS, "occupied") as threads,
    ):
        if client is None or not tables:
            return TargetTables()
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
    try:
        with target_client(configuration) as client, translated("reading the sink's identity", SinkRefused):
            return cluster_id(configuration) if client is None else identify(client).id or ""
    except SluiceError:
        return ""
