"""`shard_obstacles`: why tables cannot be written through the routers of a sharded target, or cannot be sharded there as `shard_target` says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from admin.preflight.privileges import ANYWHERE, Privileges
from admin.preflight.sink_probe import SinkFindings, impatient
from admin.preflight.source_probe import SourceFindings
from changefeed.config.configuration import Configuration
from changefeed.config.tables.column_rules import shown_otherwise
from changefeed.errors import SinkRefused, SluiceError
from changefeed.table import TableName
from credentials.secrets import expanded
from sink.mongodb.connection import connect
from sink.mongodb.errors import translated
from sink.mongodb.rows.placing import shard_key_of

_READER, _MANAGER = ("clusterMonitor", "admin"), ("clusterManager", "admin")
_SHARDING = ("enableSharding", "splitChunk", "moveChunk")


def shard_obstacles(configuration: Configuration, found: SourceFindings, target: SinkFindings) -> Iterator[str]:
    if target.version is None:
        return
    if configuration.shard_target:
        yield from _not_sharded(found, target)
    if not target.sharded or target.privileges is None:
        return
    lacking = list(_lacking(target.privileges, shards=configuration.shard_target))
    yield from lacking
    if not lacking:
        yield from _of_tables(configuration, found)


def _not_sharded(found: SourceFindings, target: SinkFindings) -> Iterator[str]:
    if not target.sharded:
        yield "shard_target: the sink is no router of a sharded cluster, so it has no shards; name its routers (mongos), or write false"
    if found.version is not None and not found.sharded:
        yield "shard_target: the source is no sharded cluster, so no table has a shard key; write false, and shard the tables at the sink yourself"


def _lacking(privileges: Privileges, *, shards: bool) -> Iterator[str]:
    """How tables are sharded says how their rows have to be written, whatever `shard_target` is."""
    roles = (_READER, _MANAGER) if shards else (_READER,)
    if missing := privileges.lacking(["find"], "config", "collections"):
        yield f"sink: {privileges.problem(missing, 'in config.collections', *roles)}"
    if shards and (missing := privileges.lacking(_SHARDING, ANYWHERE)):
        yield f"shard_target: at the sink, {privileges.problem(missing, 'in all databases', *roles)}"


def _of_tables(configuration: Configuration, found: SourceFindings) -> Iterator[str]:
    names = {configuration.routes.target(table.name) or table.name: table.name for table in found.tables}
    try:
        entries = _sharded_there(configuration, sorted(names))
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
        for path in shown_otherwise(configuration.columns_of(table), fields):
            yield f"columns: {table}: {path} is part of the shard key of {entry['_id']} at the sink, by which rows are found; leave it as it is"


def _sharded_there(configuration: Configuration, names: Sequence[TableName]) -> list[Mapping[str, Any]]:
    with (
        closing(connect(impatient(expanded(configuration.sink)))) as client,
        translated("reading which tables the sink shards", SinkRefused),
    ):
        return list(client["config"]["collections"].find({"_id": {"$in": [str(name) for name in names]}}))
