"""Whether a sink takes what a configuration sends it: its user and version, the tables that it has, its shards, and messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from admin.preflight.looked import Check, Looked
from admin.preflight.privileges import ANYWHERE, KEEPING, Privileges, missing_at_sink
from admin.preflight.sink_probe import TargetTables
from changefeed.capture import Capture
from changefeed.config.configuration import Configuration, OnOccupied
from changefeed.config.live_options import LIVE_IN_SINKS, differing, messages_at
from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.config.sinks.message_options import FormatName, Images
from changefeed.config.tables.column_rules import shown_otherwise
from changefeed.config.written_values import Start
from changefeed.errors import SinkRefused, SluiceError
from changefeed.printable import named
from changefeed.records.requests import Reroute
from changefeed.table import TableKind, TableName
from sink.mongodb.rows.placing import shard_key_of
from sink.mongodb.sync_marks import SYNC_POINTS
from sink.mongodb.target_errors import translated
from sink.opening import open_sink, target_client

_TAKES_USERS = (4, 4)
_SHOWS_DDL = (6, 0)
_KEEPS_SNAPSHOTS = (5, 0)
_READER, _MANAGER = ("clusterMonitor", "admin"), ("clusterManager", "admin")
_SHARDING = ("enableSharding", "splitChunk", "moveChunk")


def _taken(looked: Looked) -> Iterator[str]:
    configuration, sink = looked.configuration, looked.sink
    yield from sink.problems
    if sink.privileges is not None:
        databases = _databases(looked)
        yield from missing_at_sink(sink.privileges, databases, configuration.dead_letter, users=configuration.users)
        if configuration.sync_points is not None and (missing := sink.privileges.lacking(KEEPING, SYNC_POINTS.db)):
            where = f"in database {SYNC_POINTS.db}"
            yield f"sync_points: at the sink, {sink.privileges.problem(missing, where, ('readWrite', SYNC_POINTS.db))}"
    if configuration.users and sink.version is not None and sink.version < _TAKES_USERS:
        yield (
            f"users: the sink is MongoDB {sink.version[0]}.{sink.version[1]}; expected 4.4 or later, since users are written as they are stored, "
            "and whether earlier servers find them has not been tried; upgrade it, or write users: false"
        )
    if looked.source.identity.same(sink.identity):
        yield "sink: it is the same deployment as the source; Sluice would read its own writes again, name another target"


def _databases(looked: Looked) -> set[str]:
    """The target databases of the existing tables, and of the patterns without wildcards in the database."""
    configuration = looked.configuration
    later = {
        target for db in configuration.filter.named_databases for target in configuration.routes.target_databases(db)
    }
    return later | {looked.target(table).db for table in looked.tables}


def _older(looked: Looked) -> Iterator[str]:
    """Checked for new changefeeds only: if a source is upgraded while its changefeed runs, the changefeed continues and may be updated.

    A way back leads to where the rows came from. What the older server cannot have stops its table.
    """
    source, target = looked.source.version, looked.sink.version
    if (
        looked.replaces is None
        and not looked.reverses
        and source is not None
        and target is not None
        and target < source
    ):
        yield (
            f"sink: it is MongoDB {target[0]}.{target[1]}, older than the source, which is {source[0]}.{source[1]}; options, indexes and "
            "field names that only the newer version supports would be refused during replication: upgrade the target, or name another"
        )


def _hidden(looked: Looked) -> Iterator[str]:
    if looked.sink.identity_lacks:
        yield (
            f"sink: {looked.sink.identity_lacks}. Without it no update can prove that a changed connection string leads to the same deployment"
        )


def _copies(looked: Looked) -> bool:
    return looked.configuration.start is Start.INITIAL or looked.replaces is not None


def _occupied(looked: Looked, at_target: TargetTables) -> list[TableName]:
    """A name that several tables share is not empty for long: it is not looked at, here or before a copy."""
    targets = Counter(looked.target(table) for table in looked.tables)
    copied = {looked.target(table) for table in looked.added if table.kind is not TableKind.VIEW}
    return [name for name in sorted(copied & at_target.occupied) if targets[name] == 1]


def _refused(looked: Looked) -> Iterator[str]:
    if looked.at_target is None or not _copies(looked) or looked.configuration.on_occupied is not OnOccupied.REFUSE:
        return
    if occupied := _occupied(looked, looked.at_target):
        yield (
            f"sink: it has documents already in {named(occupied)}, which an initial copy would fill; drop them there, write on_occupied: drop "
            "or keep, route the tables to other names (routes), or write start: now if the target has the source's data already"
        )


def _dropped_or_kept(looked: Looked) -> Iterator[str]:
    if looked.at_target is None or not _copies(looked) or looked.configuration.on_occupied is OnOccupied.REFUSE:
        return
    if occupied := _occupied(looked, looked.at_target):
        kept = looked.configuration.on_occupied is OnOccupied.KEEP
        fate = "stay, and remain if the source does not have them" if kept else "are dropped before the copy"
        yield f"on_occupied: the target has documents in {named(occupied)}; they {fate}"


def _names_in_use(looked: Looked) -> Iterator[str]:
    """Whatever `on_occupied` says: a copy leaves the tables of the old names."""
    if looked.at_target is None or looked.replaces is None:
        return
    in_use = sorted(looked.may_look_at(looked.renamed - looked.at_target.missing))
    if in_use:
        yield (
            f"routes: the target has {named(in_use)} already, so no table can be renamed to that; drop or rename it there, or write other names"
        )
    if looked.replaces.reroute is Reroute.COPY:
        kept = sorted({looked.target(table) for table in looked.added} & {place.at for place in looked.moving})
        if kept:
            yield (
                f"routes: {named(kept)} would stay at the target as what a table was before, and be the new name of another one; write other names, or "
                "--routes rename"
            )


def _series_unmade(looked: Looked) -> Iterator[str]:
    """A server would make a plain collection of the buckets that come, which nobody can read."""
    if looked.at_target is None or _copies(looked):
        return
    missing = looked.at_target.missing
    names = sorted(table.name for table in looked.added if table.bucketed and looked.target(table) in missing)
    if names:
        yield (
            f"start: {looked.configuration.start} creates nothing, and the target has no time series for {named(names)}; create it there with the "
            "options that it has at the source, write initial, or leave it out (filter.tables)"
        )


def _uncopied(looked: Looked) -> Iterator[str]:
    if looked.at_target is None or _copies(looked):
        return
    names = sorted(table.name for table in looked.added if looked.target(table) in looked.at_target.missing)
    if names:
        yield (
            f"start: {looked.configuration.start} copies nothing, and the target has no table for {named(names)}; their present rows will be "
            "missing there. Copy them to the target first, or write initial"
        )


def shards(looked: Looked) -> Iterator[str]:
    """Why tables cannot be written through the routers of a sharded target, or cannot be sharded there as `shard_target` says."""
    sink, wanted = looked.sink, looked.configuration.shard_target
    if sink.version is None:
        return
    if wanted and not sink.sharded:
        yield "shard_target: the sink is no router of a sharded cluster, so it has no shards; name its routers (mongos), or write false"
    if wanted and looked.source.version is not None and not looked.source.sharded:
        yield "shard_target: the source is no sharded cluster, so no table has a shard key; write false, and shard the tables at the sink yourself"
    if not sink.sharded or sink.privileges is None:
        return
    lacking = list(_lacking(sink.privileges, shards=wanted))
    yield from lacking
    if not lacking:
        yield from _shard_keys(looked)


def _lacking(privileges: Privileges, *, shards: bool) -> Iterator[str]:
    """How tables are sharded says how their rows have to be written, whatever `shard_target` is."""
    roles = (_READER, _MANAGER) if shards else (_READER,)
    if missing := privileges.lacking(["find"], "config", "collections"):
        yield f"sink: {privileges.problem(missing, 'in config.collections', *roles)}"
    if shards and (missing := privileges.lacking(_SHARDING, ANYWHERE)):
        yield f"shard_target: at the sink, {privileges.problem(missing, 'in all databases', *roles)}"


def _shard_keys(looked: Looked) -> Iterator[str]:
    names = {looked.target(table) or table.name: table.name for table in looked.tables}
    try:
        entries = _sharded_there(looked.configuration, sorted(names))
    except SluiceError as error:
        yield f"sink: {error}"
        return
    for entry in entries:
        try:
            fields = shard_key_of(entry)
        except SluiceError as error:
            yield f"sink: {error}"
            continue
        table = names[TableName.parse(entry["_id"])]
        for path in shown_otherwise(looked.configuration.columns_of(table), fields):
            yield f"columns: {table}: {path} is part of the shard key of {entry['_id']} at the sink, by which rows are found; leave it as it is"


def _sharded_there(configuration: Configuration, names: Sequence[TableName]) -> list[Mapping[str, Any]]:
    with target_client(configuration) as client, translated("reading which tables the sink shards", SinkRefused):
        assert client is not None, "expected a router, since only that has shards"
        return list(client["config"]["collections"].find({"_id": {"$in": [str(name) for name in names]}}))


def sync_points(looked: Looked) -> Iterator[str]:
    """What keeps both sides from being read at one time of the past each."""
    if looked.configuration.sync_points is None:
        return
    if looked.source.sharded and looked.capture is Capture.CHANGE_STREAM:
        yield "sync_points: the source names routers, and no read of the past through these was tried; name the config servers, or leave it out"
    if looked.sink.sharded:
        yield "sync_points: the sink is a sharded cluster, and nothing proves at which time all of its shards have the same; leave it out"
    for side, version in (("source", looked.source.version), ("sink", looked.sink.version)):
        if version is not None and version < _KEEPS_SNAPSHOTS:
            yield (
                f"sync_points: the {side} is MongoDB {version[0]}.{version[1]}; expected 5.0 or later, which can be read as of a time of the past; "
                "upgrade it, or leave it out"
            )


def _changes_live(configuration: Configuration) -> str:
    live = sorted(LIVE_IN_SINKS.get(configuration.sink.scheme, ()))
    return f". Of a sink's options {', '.join(live)} may change" if live else ""


def messages(looked: Looked) -> Iterator[str]:
    """What keeps a changefeed from writing messages, or from changing how it does."""
    configuration, before = looked.configuration, looked.before
    sink = open_sink(configuration)
    if before is not None and (sink.every_change or open_sink(before).every_change):
        same = {"source", *(["sink"] if messages_at(before.sink) == messages_at(configuration.sink) else ())}
        changed = [name for name in differing(configuration, before) if name not in same]
        if changed:
            yield (
                f"{', '.join(changed)}: found a change, and the messages that exist were written with the options of before; create another "
                "changefeed, with a directory or prefix of its own" + _changes_live(configuration)
            )
        return
    if not sink.every_change:
        return
    version = looked.source.version
    if not looked.sink.problems:
        written = {looked.target(table) for table in looked.tables if table.kind is not TableKind.VIEW}
        yield from sink.obstacles(written)
    if looked.capture is Capture.CHANGE_STREAM and version is not None and version < _SHOWS_DDL:
        yield (
            f"sink: the change streams of MongoDB {version[0]}.{version[1]} do not show all DDL, and messages would lack it; let the source's user "
            "read local.oplog.rs (read on the database local), upgrade the source to 6.0, or name a MongoDB as sink"
        )
    shared = sorted(table.name for table in looked.tables if configuration.routes.gathers(table.name))
    if shared:
        yield (
            f"routes: found tables that share one name ({named(shared)}); a reader could not tell a DDL of one from one of all: give each its own name"
        )


def deltas(looked: Looked) -> Iterator[str]:
    """What consumers make of messages that say only what changed."""
    sink = looked.configuration.sink
    if looked.configuration.images is not Images.NONE or sink.scheme != "kafka":
        return
    match KafkaSinkOptions.parse(sink.reference).messages.format:
        case FormatName.DEBEZIUM:
            yield (
                "sink: with format=debezium and without images, `after` is null in the message of an update, and `updateDescription` says what changed; "
                "MongoDB's sink connector fails on it, and Debezium's ExtractNewDocumentState gives the changed fields alone: for these write images: "
                "available (6.0; see docs/reference/events.md)"
            )
        case FormatName.MONGODB:
            yield (
                "sink: with format=mongodb and without images, MongoDB's sink connector does not shorten arrays: 1.13 fails on such an update, and 2.0 leaves "
                "the elements there; if the source's applications shorten arrays ($pop, $slice), write images: available (6.0; see docs/reference/events.md)"
            )
        case FormatName.SLUICE:
            """Its consumers apply what changed."""


PROBLEMS: tuple[Check, ...] = (
    _taken,
    shards,
    sync_points,
    messages,
    _older,
    _refused,
    _names_in_use,
    _series_unmade,
)
WARNINGS: tuple[Check, ...] = (_dropped_or_kept, _uncopied, deltas, _hidden)
