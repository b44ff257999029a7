"""`probe_shards`: checks whether a changefeed can read the oplogs of a sharded cluster, whose config servers its source names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import timedelta

from admin.preflight.deployment import DeploymentIdentity, identify
from admin.preflight.looked import SourceFindings
from admin.preflight.privileges import Privileges
from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.capture_choice import CaptureChoice, image_obstacles
from changefeed.config.configuration import Configuration
from changefeed.config.written_values import Start
from changefeed.errors import SluiceError
from changefeed.position import Position
from changefeed.table import TableKind, TableSchema
from source.connection import Client, version_of
from source.errors import translated
from source.oplog.window import OplogWindow
from source.sharded.cluster_clients import CONFIG, ClusterClients, reach_newest
from source.sharded.owned.cluster_catalog import balancer_runs, read_cluster_catalog
from source.sharded.source import ShardedSource
from source.sharded.tables.orphan_guard import MIGRATIONS, RANGES, STILLNESS, TELLS_ORPHANS

_OF_CONFIG = ("collections", "databases", "chunks", "shards", "transactions", "changelog")
_OF_LAYOUTS = ("tags",)
"""What `shard_target` reads besides."""
_AT_CONFIG = (("clusterMonitor", "admin"),)
_AT_SHARDS = (("clusterMonitor", "admin"), ("readAnyDatabase", "admin"))
_OF_BALANCER = ("settings",)
_OF_SHARDS = ("transactions",)
_OF_ORPHANS = tuple(name.coll for name in (MIGRATIONS, RANGES))
_NOT_PROVEN = (7, 0)
_MOST_AHEAD = timedelta(minutes=1)


def probe_shards(uri: str, configuration: Configuration, asked: Capture) -> SourceFindings:
    """Problems that one reading can show are shown together; the others need that these are gone."""
    problems = list(_senseless(configuration, asked))
    with closing(ClusterClients(uri, app_name="sluice-validate")) as clients:
        clients.refuse_others()
        version = version_of(clients.config)
        if version >= _NOT_PROVEN:
            problems.append(
                f"source: its config servers are MongoDB {version[0]}.{version[1]}; reading the oplogs of shards has been proven for 5.0 "
                "and 6.0 only, name the cluster's routers (mongos), which are read by change streams"
            )
        problems += _unreadable(clients, shard_target=configuration.shard_target)
        if problems:
            return SourceFindings(problems=tuple(problems), version=version, sharded=True)
        choice = CaptureChoice(
            capture=Capture.SHARD_OPLOGS, reason="the source is a sharded cluster, named by its config servers"
        )
        source = ShardedSource(clients)
        window, now = source.oplog_window(), Position(reach_newest(clients).next())
        start = now if isinstance(configuration.start, Start) else Position(configuration.start)
        if (problem := start_problem(window, start.ts, now.ts)) is not None:
            problems.append(problem)
        else:
            problems += _unreadable_history(source, min(start, now))
        tables = read_cluster_catalog(clients, configuration.filter.wants_table).tables
        problems += _not_replicable(tables)
        return SourceFindings(
            problems=tuple(problems),
            identity=_identity(clients.config),
            version=version,
            tables=tables,
            choice=choice,
            read=True,
            sharded=True,
            oplog_span=window.span if window is not None else None,
        )


def _senseless(configuration: Configuration, asked: Capture) -> Iterator[str]:
    if asked is Capture.CHANGE_STREAM:
        yield (
            "capture: change_stream is not possible, since the source names config servers, which show no change stream of the cluster; name its "
            "routers (mongos), or write oplog"
        )
    for obstacle in image_obstacles(configuration):
        yield f"capture: the oplogs of shards cannot be read, since {obstacle.reason}; {obstacle.remedy}"
    if configuration.users:
        yield "users: users of a sharded cluster are not replicated from its config servers; write false"


def _unreadable(clients: ClusterClients, *, shard_target: bool) -> Iterator[str]:
    """Users of a shard are its own: each deployment is asked."""
    of_config = (*_OF_CONFIG, *_OF_LAYOUTS) if shard_target else _OF_CONFIG
    lacking = _lacking(clients.config, "the config servers", _AT_CONFIG, config=True, of_config=of_config)
    guarded = not lacking and clients.read_features() < TELLS_ORPHANS
    if guarded:
        lacking = _lacking(clients.config, "the config servers", _AT_CONFIG, config=True, of_config=_OF_BALANCER)
    if lacking:
        yield from lacking
        return
    if guarded and balancer_runs(clients.config):
        yield f"source: the balancer of the cluster is on: {STILLNESS}, then create the changefeed"
    of_shards = (*_OF_SHARDS, *_OF_ORPHANS) if guarded else _OF_SHARDS
    for shard, host in sorted(clients.read_shards().items()):
        if shard == CONFIG:
            yield f"source: a shard of it is named {CONFIG}, which a config server has that is a shard itself; name the cluster's routers"
            continue
        try:
            yield from _lacking(
                clients.of(shard, host), f"shard {shard} ({host})", _AT_SHARDS, config=False, of_config=of_shards
            )
        except SluiceError as error:
            yield (
                f"source: shard {shard} ({host}) cannot be read: {error}; users of a shard are its own, so if the user is missing there, run at "
                f"its primary {_create_user(clients.config, _AT_SHARDS)}"
            )


def _lacking(
    client: Client, where: str, roles: tuple[tuple[str, str], ...], *, config: bool, of_config: Sequence[str]
) -> list[str]:
    with translated(f"reading the privileges of the source's user on {where}"):
        privileges = Privileges.of(client.admin.command("connectionStatus", showPrivileges=True))
    problems = []
    wanted = [("local", "oplog.rs"), *(("config", coll) for coll in of_config)]
    for db, coll in wanted:
        if missing := privileges.lacking(["find"], db, coll):
            problems.append(f"source: on {where}, {privileges.problem(missing, f'in {db}.{coll}', *roles)}")
    if missing := privileges.lacking_on_the_cluster(["getParameter" if config else "listDatabases"]):
        problems.append(f"source: on {where}, {privileges.problem(missing, 'on the cluster', *roles)}")
    if not config and (missing := privileges.lacking(["find", "listCollections", "listIndexes"], "")):
        problems.append(f"source: on {where}, {privileges.problem(missing, 'in all databases', *roles)}")
    return problems


def _create_user(client: Client, roles: tuple[tuple[str, str], ...]) -> str:
    with translated("reading the name of the source's user"):
        user = Privileges.of(client.admin.command("connectionStatus", showPrivileges=True))
    granted = ", ".join(f'{{role: "{role}", db: "{db}"}}' for role, db in roles)
    name = user.user or "sluice"
    return (
        f'db.getSiblingDB("{user.user_db}").createUser({{user: "{name}", pwd: passwordPrompt(), roles: [{granted}]}})'
    )


def start_problem(window: OplogWindow | None, start: ClusterTime, now: ClusterTime) -> str | None:
    """Clocks may differ a little. What is further ahead is most often a local time that was taken for UTC."""
    early = start.to_datetime() - now.to_datetime()
    if early > _MOST_AHEAD:
        return (
            f"start: {start} ({start.to_iso()}) is {early} ahead of the source, which is at {now} ({now.to_iso()}); write a time that has passed, a "
            "local one with its offset, such as 2026-11-21T09:00:00+09:00, or now"
        )
    return f"start: {lost}" if (lost := lost_start(window, start)) is not None else None


def lost_start(window: OplogWindow | None, start: ClusterTime) -> str | None:
    if window is None or window.holds(Position(start)):
        return None
    return (
        f"{start} ({start.to_iso()}) is no longer in the source's oplog{window.of and ' ' + window.of.strip()}, the oldest is {window.oldest_ts} ({window.oldest_ts.to_iso()}); "
        "start later, or with initial"
    )


def _unreadable_history(source: ShardedSource, start: Position) -> Iterator[str]:
    """Reads as the changefeed will."""
    try:
        with closing(source.open_watch(start)) as watch:
            trouble = watch.poll().trouble
    except SluiceError as error:
        yield f"source: {error}"
        return
    if trouble is not None:
        yield f"source: {trouble}"


def _not_replicable(tables: Iterable[TableSchema]) -> Iterator[str]:
    series = sorted(str(table.name) for table in tables if table.kind is TableKind.TIMESERIES)
    if series:
        yield (
            f"filter.tables: found time series ({', '.join(series[:5])}), whose buckets the oplogs of shards do not tell from the server's own "
            "collections; leave them out"
        )


def _identity(client: Client) -> DeploymentIdentity:
    """That of the config servers."""
    with translated("reading the source's identity"):
        return identify(client)
