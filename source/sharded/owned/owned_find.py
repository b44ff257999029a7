"""`owned_find`: the documents that a cluster has in a range of a table's `_id`s, at one time.

A shard keeps documents that it does not own: those that a migration brings or leaves. It shows only its own ones to a reader that says
by `shardVersion` which chunks it takes the shard to own, and answers with an error if these are others by now. All shards are read at one
time, or a document that moves meanwhile would be read twice, or not at all. A server does all this for its routers; any user who
may read the database may ask for it.

    config.chunks      sa is at 3|4, sb at 5|1
    hello, reads       all have reached 100.7
    find at 100.7      sa {shardVersion 3|4}, sb {shardVersion 5|1}       each what it owned at 100.7
    sb: StaleConfig    config.chunks again, and both shards at a newer time

The versions come before the time. If a shard takes them, nobody else has become the owner in between. A movePrimary copies the documents of
a database under the server's own hands: at a time before its end the new primary shard has a part of them.

At a time of the past the config servers are read as of then, too. A shard knows who owned a chunk then, or says that it does not, but shows other
rows without an error if the table was sharded, resharded, made anew or given another primary shard since, and one that was removed is not asked.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import structlog
from bson.objectid import ObjectId
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SourceUnavailable
from changefeed.table import TableName
from source.connection import MAJORITY, config_documents, read_command, version_of
from source.errors import error_text, translated
from source.raw_find import Found, RawFind
from source.sharded.cluster_clients import ClusterClients, reach

STALE = frozenset({13388, 249, 63, 150})
"""StaleConfig, StaleDbVersion, StaleShardVersion, StaleEpoch."""
_SNAPSHOT_UNAVAILABLE = 246
_NO_SNAPSHOT = frozenset(
    {
        239,  # SnapshotTooOld
        _SNAPSHOT_UNAVAILABLE,  # the collection came to a shard, or changed there, after that time
    }
)
_PATIENCE_SECONDS = 30.0
_LOOK_AGAIN_SECONDS = 0.05
_NO_EPOCH = ObjectId("0" * 24)
_NO_TIME = Timestamp(0, 0)
_NO_VERSION = {"e": _NO_EPOCH, "t": _NO_TIME, "v": _NO_TIME}
_NAMES_PARTS = (6, 0)
"""Before, a version is a list of its parts. An upgrade reaches the config servers first, then one shard after another."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OwnedReplies:
    """`first` and `rest` of each shard that was asked, by its name; all documents are of `at_ts`, without a `snapshot` of that time or later."""

    at_ts: ClusterTime
    versions: Mapping[str, Mapping[str, object]]
    """What was said to each shard."""
    first: Mapping[str, Found]
    rest: Mapping[str, Iterator[Found]]
    snapshot: bool


@contextmanager
def owned_find(
    clients: ClusterClients,
    table: TableName,
    arguments: Mapping[str, object],
    *,
    not_before: ClusterTime,
    most: int,
    beside: OwnedReplies | None = None,
    past_ts: ClusterTime | None = None,
) -> Iterator[OwnedReplies]:
    """`arguments` are those of the `find` command. Each shard's first reply is there when this returns.

    `past_ts`: at that time and no other; what cannot be shown as of then is an error with the server's code.

    `beside`: at their time and no other, as long as the shards keep it and the table is the same.

    No server reads a capped collection at an earlier time, but one shard has all of it: it is read without a snapshot.
    """
    give_up_at, capped = time.monotonic() + _PATIENCE_SECONDS, False
    with ExitStack() as stack:
        while True:
            with ExitStack() as attempt:
                try:
                    with translated(f"reading {table} at the shards of the source"):
                        hosts = clients.read_shards()
                        versions = _versions(clients, table, hosts)
                        if beside is not None and not _same_owners(versions, beside.versions):
                            raise SourceUnavailable(f"{table} was moved since {beside.at_ts}")
                        if past_ts is not None:
                            _refuse_changed(clients, table, hosts, versions, past_ts)
                        at_ts = past_ts or (beside.at_ts if beside is not None else reach(clients, not_before))
                        level = "majority" if capped and len(versions) == 1 else "snapshot"
                        time_name = "afterClusterTime" if level == "majority" else "atClusterTime"
                        said = {**arguments, "readConcern": {"level": level, time_name: at_ts.to_bson()}}
                        retried = STALE | _NO_SNAPSHOT if past_ts is None else STALE
                        replies = _asked(
                            clients, table, said, hosts, versions, at_ts, attempt, most=most, retried=retried
                        )
                except _Stale as stale:
                    if past_ts is None and not capped and (capped := _is_capped(clients, table, hosts)):
                        continue
                    if time.monotonic() > give_up_at:
                        raise SourceUnavailable(f"reading {table}: {stale}; it is read again") from stale
                    log.info("routes_were_stale", table=str(table), reason=str(stale))
                else:
                    stack.push(attempt.pop_all())
                    break
            time.sleep(_LOOK_AGAIN_SECONDS)
        yield replies


class _Stale(Exception):
    """The shards own other chunks than the config servers said, or have no snapshot of that time."""


def _asked(
    clients: ClusterClients,
    table: TableName,
    arguments: Mapping[str, Any],
    hosts: Mapping[str, str],
    versions: Mapping[str, Mapping[str, object]],
    at_ts: ClusterTime,
    stack: ExitStack,
    *,
    most: int,
    retried: Collection[int],
) -> OwnedReplies:
    first: dict[str, Found] = {}
    rest: dict[str, Iterator[Found]] = {}
    for shard, version in versions.items():
        client = clients.of(shard, hosts[shard])
        listed = version_of(client) < _NAMES_PARTS
        said = {**arguments, **(_listed(version) if listed else version)}
        replies = iter(stack.enter_context(RawFind(client, table, said, most=most)))
        try:
            first[shard] = next(replies)
        except OperationFailure as error:
            if error.code in retried:
                raise _Stale(f"shard {shard}: {error_text(error)}") from error
            raise
        rest[shard] = replies
    if clients.read_shards() != hosts:
        raise _Stale("shards were added or removed meanwhile")
    return OwnedReplies(at_ts, versions, first, rest, snapshot="atClusterTime" in arguments["readConcern"])


def _is_capped(clients: ClusterClients, table: TableName, hosts: Mapping[str, str]) -> bool:
    """Not a sharded one."""
    listing = {"listCollections": 1, "filter": {"name": table.coll, "options.capped": True}}
    with translated(f"looking for {table} at its shard"):
        primaries = [each["primary"] for each in config_documents(clients.config, "databases", {"_id": table.db})]
        found = [read_command(clients.of(each, hosts[each]), table.db, listing) for each in primaries if each in hosts]
    return any(each["cursor"]["firstBatch"] for each in found)


def _refuse_changed(
    clients: ClusterClients,
    table: TableName,
    hosts: Mapping[str, str],
    versions: Mapping[str, Mapping[str, object]],
    past_ts: ClusterTime,
) -> None:
    then = {"level": "snapshot", "atClusterTime": past_ts.to_bson()}
    shards = {each["_id"]: each["host"] for each in config_documents(clients.config, "shards", concern=then)}
    if not shards.keys() <= hosts.keys():
        raise OperationFailure(f"a shard was removed since {past_ts}", _SNAPSHOT_UNAVAILABLE)
    if not _same_owners(versions, _versions(clients, table, shards, then)):
        raise OperationFailure(f"{table} or its database has changed since {past_ts}", _SNAPSHOT_UNAVAILABLE)


def _versions(
    clients: ClusterClients, table: TableName, hosts: Mapping[str, str], concern: Mapping[str, object] = MAJORITY
) -> Mapping[str, Mapping[str, object]]:
    """By shard, what a command for this table carries. Of a sharded table all shards are asked: one may have given its last chunk away just now."""
    found = config_documents(clients.config, "collections", {"_id": str(table)}, concern=concern, limit=1)
    if not found or found[0].get("unsplittable"):
        [*databases] = config_documents(clients.config, "databases", {"_id": table.db}, concern=concern, limit=1)
        return {
            each["primary"]: {"shardVersion": _NO_VERSION, "databaseVersion": each["version"]} for each in databases
        }
    [collection] = found
    versions: dict[str, Mapping[str, object]] = {}
    for shard in hosts:
        owned = {"uuid": collection["uuid"], "shard": shard}
        newest = config_documents(clients.config, "chunks", owned, concern=concern, sort={"lastmod": -1}, limit=1)
        version = {
            "e": collection["lastmodEpoch"],
            "t": collection["timestamp"],
            "v": newest[0]["lastmod"] if newest else _NO_TIME,
        }
        versions[shard] = {"shardVersion": version}
    return versions


def _listed(version: Mapping[str, Any]) -> Mapping[str, object]:
    parts = version["shardVersion"]
    return {**version, "shardVersion": [parts["v"], parts["e"], parts["t"]]}


def _same_owners(now: Mapping[str, Mapping[str, Any]], then: Mapping[str, Mapping[str, Any]]) -> bool:
    """Or chunks were moved: a shard knows which it owned at an earlier time. It does not know that of a table that was not sharded."""

    def kept(versions: Mapping[str, Mapping[str, Any]]) -> list[object]:
        return [
            (said["shardVersion"]["e"], said["shardVersion"]["t"], said.get("databaseVersion"))
            for said in versions.values()
        ]

    return kept(now)[:1] == kept(then)[:1]
