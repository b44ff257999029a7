"""`ClusterClock`: a time that all shards of a cluster have reached.

A shard that nobody writes to is at its last no-op, up to ten seconds behind. A read with `afterClusterTime` has it write another one. It takes
the time from another shard only with that shard's signature, which sessions carry.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SourceUnavailable
from source.connection import HELLO, Client, read_command
from source.errors import translated
from source.oplog.find import OPLOG
from source.sharded.cluster_clients import CONFIG, ClusterClients

_LONGEST_MS = 10_000
_THREADS = 16


def reach_newest(clients: ClusterClients) -> ClusterTime:
    """Everything that was acknowledged before this call is at or before it, and a majority of each shard has reached it."""
    streams = _streams(clients)
    with ThreadPoolExecutor(_THREADS, "clock") as threads:
        points = list(threads.map(_newest, streams.items()))
        newest_ts, proof = max(points, key=lambda point: point[0])
        for _ in threads.map(lambda each: _reach(each[0], each[1], newest_ts, proof), streams.items()):
            pass
    return newest_ts


def reach(clients: ClusterClients, at_least_ts: ClusterTime) -> ClusterTime:
    """A time that all shards have reached, not before the one that is wanted: some shard has it."""
    reached_ts = reach_newest(clients)
    if reached_ts < at_least_ts:
        raise SourceUnavailable(f"the source's shards have reached {reached_ts}, expected {at_least_ts} or later")
    return reached_ts


def _streams(clients: ClusterClients) -> Mapping[str, Client]:
    hosts = clients.read_shards()
    return {CONFIG: clients.config, **{name: clients.of(name, host) for name, host in hosts.items()}}


def _newest(stream: tuple[str, Client]) -> tuple[ClusterTime, Mapping[str, Any] | None]:
    """The last write, and the signed time that proves it."""
    name, client = stream
    with (
        translated(f"reading the newest time of {name}"),
        client.start_session(causal_consistency=False) as session,
    ):
        written = read_command(client, "admin", {HELLO: 1}, session=session).get("lastWrite", {})
        if "opTime" not in written:
            raise SourceUnavailable(f"a member of {name} does not know its last write yet")
        return ClusterTime.from_bson(written["opTime"]["ts"]), session.cluster_time


def _reach(name: str, client: Client, to_ts: ClusterTime, proof: Mapping[str, Any] | None) -> None:
    command = {
        "find": OPLOG.coll,
        "filter": {"ts": to_ts.to_bson()},
        "projection": {"ts": 1},
        "limit": 1,
        "readConcern": {"level": "majority", "afterClusterTime": to_ts.to_bson()},
        "maxTimeMS": _LONGEST_MS,
    }
    with translated(f"asking {name} to reach {to_ts}"), client.start_session(causal_consistency=False) as session:
        if proof is not None:
            session.advance_cluster_time(proof)
        read_command(client, OPLOG.db, command, session=session)
