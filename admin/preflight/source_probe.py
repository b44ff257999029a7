"""`probe_source`: checks whether a changefeed can read a source, by reading it as the changefeed will."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from pymongo.errors import OperationFailure

from admin.preflight.deployment import identify, part_of_a_cluster
from admin.preflight.looked import SourceFindings
from admin.preflight.privileges import Privileges, missing_at_source, missing_identity
from admin.preflight.shards_probe import lost_start, probe_shards, start_problem
from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.capture_choice import Obstacle, choose, image_obstacles
from changefeed.config.configuration import Configuration
from changefeed.config.sinks.message_options import Images
from changefeed.config.uri import refused_at_source
from changefeed.config.written_values import Start
from changefeed.errors import ConfigurationError, HistoryLost, SluiceError, SourceRefused
from changefeed.position import Position
from changefeed.records.requests import ChangefeedInfo
from changefeed.table import SYSTEM_DATABASES, TableKind, TableSchema
from credentials.secrets import expanded
from processor.task.rows.shuffle import divisible
from processor.task.rows.source_rows import streams_asked_for
from source.connection import (
    Client,
    connect,
    deployment_of,
    is_config_server,
    is_router,
    read_command,
    refused_member,
)
from source.errors import is_refusal, translated
from source.one_deployment import open_ddl_watch
from source.opening import open_source
from source.oplog.window import OplogWindow, majority_time, newest_time, oplog_obstacle, read_oplog_window
from source.sharded.cluster_clients import ClusterClients, reach_newest
from source.stream.window_reader import WindowReader
from source.tables.catalog import read_catalog

_NAME = "sluice-validate"
_IMAGES = "changeStreamPreAndPostImages"


def probe_source(configuration: Configuration, asked: Capture, positions: Sequence[Position] = ()) -> SourceFindings:
    """Takes some seconds if the source does not answer. `positions`: of a changefeed that has read it, so that its oplog should have
    an entry at one of them.
    """
    try:
        uri = expanded(configuration.source)
        with closing(connect(uri, app_name=_NAME, capture=asked)) as client:
            if (problem := refused_member(client)) is not None:
                return SourceFindings(problems=(f"source: {problem}",))
            if is_config_server(client):
                return probe_shards(uri, configuration, asked)
            with translated("reading the type of the source"):
                part = part_of_a_cluster(client)
            if part is not None:
                return SourceFindings(problems=(f"source: {part}, or its config servers",))
            found = _findings(client, configuration, asked)
            asked_for = positions and not is_router(client)
            return replace(found, has_history=_has_history(client, positions)) if asked_for else found
    except SluiceError as error:
        return SourceFindings(problems=(f"source: {error}",))


def identify_source(configuration: Configuration) -> str:
    """Empty if it does not answer, or the user may not read it."""
    uri = expanded(configuration.source)
    try:
        with closing(connect(uri, app_name=_NAME, capture=None)) as client, translated("reading the source's identity"):
            return identify(client).id or ""
    except SluiceError:
        return ""


def newest_start(configuration: Configuration) -> Position:
    """The position of `now` at the source."""
    return Position(_present(configuration, majority_time).next())


def newest_end(configuration: Configuration) -> ClusterTime:
    """After all that the source acknowledged before this call. Its majority may have some of that only later."""
    return _present(configuration, newest_time).next()


def _present(configuration: Configuration, of: Callable[[Client], ClusterTime]) -> ClusterTime:
    with closing(connect(expanded(configuration.source), app_name=_NAME, capture=None)) as client:
        if is_config_server(client):
            with closing(ClusterClients(expanded(configuration.source), app_name=_NAME, capture=None)) as clients:
                return reach_newest(clients)
        return of(client)


def check_start(info: ChangefeedInfo, start: Position) -> None:
    """Raises `HistoryLost` if the source's oplog does not contain the start, and a `ConfigurationError` if the start lies ahead."""
    uri = expanded(info.configuration.source)
    with closing(open_source(uri, info.capture)) as source:
        problem = lost_start(_window(source.oplog_window), start.ts)
    if problem is not None:
        raise HistoryLost(problem)
    if (early := start_problem(None, start.ts, newest_start(info.configuration).ts)) is not None:
        raise ConfigurationError([early])


def _findings(client: Client, configuration: Configuration, asked: Capture) -> SourceFindings:
    """What the user may not do is found before it is tried: a try would tell of one privilege at a time."""
    with translated("reading the privileges of the source's user"):
        privileges = Privileges.of(client.admin.command("connectionStatus", showPrivileges=True))
    problems: list[str] = []
    choice = None
    try:
        choice = choose(asked, list(_obstacles(client, configuration, asked)))
        if choice.capture is Capture.CHANGE_STREAM and (problem := refused_at_source(expanded(configuration.source))):
            problems.append(f"source: {problem}")
    except ConfigurationError as error:
        problems += error.problems
    deployment = deployment_of(client)
    missing = list(
        missing_at_source(
            privileges,
            choice.capture if choice is not None else asked,
            databases={*_databases(client), *configuration.filter.named_databases},
            others=configuration.filter.matches_other_databases,
            sharded=deployment.sharded,
            users=configuration.users,
        )
    )
    if missing:
        return SourceFindings(problems=(*problems, *missing), version=deployment.version, choice=choice)
    now = majority_time(client).next()
    start = now if isinstance(configuration.start, Start) else configuration.start
    window = _window(lambda: read_oplog_window(client))
    if (problem := start_problem(window, start, now)) is not None:
        problems.append(problem)
    elif choice is not None:
        problems += _capture_problems(client, configuration, choice.capture, start if window is None else now)
    with translated("reading the source's identity"):
        identity = identify(client)
    by_oplog = choice is not None and choice.capture is Capture.OPLOG
    catalog = read_catalog(client, configuration.filter.wants_table, buckets=by_oplog)
    problems += _image_problems(configuration, catalog.tables)
    return SourceFindings(
        problems=tuple(problems),
        identity=identity,
        version=deployment.version,
        tables=catalog.tables,
        choice=choice,
        read=True,
        privileges=privileges,
        sharded=deployment.sharded,
        oplog_span=window.span if window is not None else None,
        identity_lacks=missing_identity(privileges) if identity.id is None and not deployment.sharded else "",
    )


def _has_history(client: Client, positions: Sequence[Position]) -> bool | None:
    """A position without a token may be just after the entry that it comes from: then that one is asked for."""
    try:
        with translated("reading the source's oplog"):
            return any(
                client["local"]["oplog.rs"].find_one(
                    {"ts": {"$gte": at.ts.previous().to_bson(), "$lte": at.ts.to_bson()}}, {"ts": 1}
                )
                for at in positions
            )
    except SourceRefused:
        return None


def _databases(client: Client) -> list[str]:
    """Those that the user may see."""
    with translated("listing the databases of the source"):
        try:
            listed = read_command(client, "admin", {"listDatabases": 1, "nameOnly": True})["databases"]
        except OperationFailure as error:
            if is_refusal(error):
                return []
            raise
    return [each["name"] for each in listed if each["name"] not in SYSTEM_DATABASES]


def _obstacles(client: Client, configuration: Configuration, asked: Capture) -> Iterator[Obstacle]:
    if asked is Capture.CHANGE_STREAM:
        return
    yield from image_obstacles(configuration)
    unreadable = oplog_obstacle(client)
    if unreadable is not None:
        yield unreadable


def _window(read: Callable[[], OplogWindow | None]) -> OplogWindow | None:
    """None if it cannot be read, through a router or by this user; change streams do not need it."""
    try:
        return read()
    except SourceRefused:
        return None


def _capture_problems(
    client: Client, configuration: Configuration, capture: Capture, start: ClusterTime
) -> Iterator[str]:
    """Reads the source as the changefeed will. This finds a wrong kind or version of deployment, missing privileges, and a refused filter.

    `start` is the changefeed's own start only if the oplog cannot be read, as through mongos: reading then finds a lost start, too.
    """
    try:
        with closing(open_ddl_watch(client, Position(start), capture)) as watch:
            watch.poll()
        for options in streams_asked_for(configuration) if capture is Capture.CHANGE_STREAM else ():
            WindowReader(client, options).try_at(start)
    except SluiceError as error:
        yield f"source: {error}"


def _image_problems(configuration: Configuration, tables: tuple[TableSchema, ...]) -> Iterator[str]:
    for schema in sorted(tables, key=lambda schema: schema.name):
        if schema.kind is not TableKind.COLLECTION or schema.options.decode().get(_IMAGES, {}).get("enabled"):
            continue
        asker = _asker(configuration, schema)
        if asker is not None:
            yield (
                f"{asker}: {schema.name} has no pre-images, which this option needs; at the source run "
                f'db.runCommand({{collMod: "{schema.name.coll}", {_IMAGES}: {{enabled: true}}}}) in database {schema.name.db}'
            )


def _asker(configuration: Configuration, schema: TableSchema) -> str | None:
    """The option of the configuration that needs documents as they were before or after a change."""
    if configuration.pipeline.wants_pre_images(schema.name) and divisible(schema):
        return "pipeline.pre_images"
    if configuration.images is Images.REQUIRED:
        return "images"
    wanted = configuration.filter.of(schema.name)
    return "filter.events" if wanted.needs_before_image or wanted.needs_after_image else None
