"""`ClusterClients`: the connections to the config servers and the shards of a source.

`silence`: whether a shard that was removed from the cluster can still be read.

    in config.shards                     it is away at most, however long it is silent
    not there any more: it answers       its last entries are read
    it is silent, for less than 10 min   it is waited for, and the source's error says how long still
    it is silent for 10 min              it is gone: what it would have to tell is lost

An answer ends a silence. Each owner begins to count anew.

`reach`, `reach_newest`: a time that all shards of a cluster have reached.

A shard that nobody writes to is at its last no-op, up to ten seconds behind. A read with `afterClusterTime` has it write another one. It takes
the time from another shard only with that shard's signature, which sessions carry.

`shard_uri`: the connection string of a shard, made of that of its config servers.

    mongodb://reader:secret@cfg1:27019,cfg2:27019/?replicaSet=cfg&tls=true    and the shard's host sa/db1:27018,db2:27018 give
    mongodb://reader:secret@db1:27018,db2:27018/?replicaSet=sa&tls=true

Users of a shard are its own: one name and password is created on all of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pymongo.client_session import ClientSession

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.errors import SourceUnavailable, SourceUnsupported
from source.connection import HELLO, Client, config_documents, connect, read_command, version_of
from source.errors import translated
from source.oplog.find import OPLOG
from source.sharded.tables.orphan_guard import FEATURES, feature_version

CONFIG = "config"
"""The stream of the config servers. No shard may have this name: the server keeps it for the config shard of 8.0."""
_OLDEST = (5, 0)
"""Older shards have no coordinators of DDL, and their chunks are not known by a UUID."""


GONE_AFTER = timedelta(minutes=10)


class ClusterClients:
    """For all threads. `uri` names the config servers."""

    def __init__(
        self,
        uri: str,
        *,
        app_name: str = "sluice",
        capture: Capture | None = Capture.SHARD_OPLOGS,
        gone_after: timedelta | None = None,
    ) -> None:
        """`capture`: None reads the primaries, for reads that must be as new as every acknowledged write."""
        self._uri, self._app_name, self._capture = uri, app_name, capture
        self._clients: dict[str, Client] = {CONFIG: connect(uri, app_name=app_name, capture=capture)}
        """Those of shards by their hosts."""
        self._hosts: dict[str, str] = {}
        self._gone_after = gone_after if gone_after is not None else GONE_AFTER
        self._silent_since: dict[str, float] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """May be called again."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    @property
    def config(self) -> Client:
        return self._clients[CONFIG]

    def refuse_others(self) -> None:
        """Raises `SourceUnsupported` if the URI leads elsewhere, or to servers that are too old."""
        with translated("reading the type of the source"):
            hello = read_command(self.config, "admin", {HELLO: 1})
        if not hello.get("configsvr"):
            raise SourceUnsupported(f"{hello.get('setName', 'the source')} is no config server of a sharded cluster")
        if (version := version_of(self.config)) < _OLDEST:
            raise SourceUnsupported(
                f"the source is a sharded cluster of MongoDB {version[0]}.{version[1]}; the oldest version whose oplogs can be read is 5.0"
            )

    def read_features(self) -> tuple[int, int]:
        """The featureCompatibilityVersion of the config servers. That of a shard is not lower, unless an upgrade or downgrade is under way."""
        with translated(f"reading the {FEATURES} of the source"):
            reply = read_command(self.config, "admin", {"getParameter": 1, FEATURES: 1})
        features = feature_version(reply[FEATURES]["version"])
        if features < _OLDEST:
            raise SourceUnsupported(
                f"the source's {FEATURES} is {features[0]}.{features[1]}; the lowest with which the oplogs of its shards can be read is 5.0: set "
                f'it with db.adminCommand({{setFeatureCompatibilityVersion: "5.0"}}) through a router'
            )
        return features

    def read_shards(self) -> Mapping[str, str]:
        """The hosts of all shards by name, as a majority of the config servers has them."""
        with translated("reading config.shards"):
            return {each["_id"]: each["host"] for each in config_documents(self.config, "shards")}

    def read_former_host(self, shard: str) -> str | None:
        """Of a shard that was removed, as the config servers' log of changes has it. None: no longer."""
        added = {"what": "addShard", "details.name": shard}
        with translated(f"looking for the former shard {shard} in config.changelog"):
            found = config_documents(self.config, "changelog", added, sort={"$natural": -1}, limit=1)
        return str(found[0]["details"]["host"]) if found else None

    def silence(self, shard: str, host: str) -> Silence | None:
        """Of a shard that was removed. None: it answers, or it is a shard again."""
        if shard in self.read_shards():
            return None
        try:
            with translated(f"asking the former shard {shard} at {host}"):
                read_command(self.of(shard, host), "admin", {"ping": 1})
        except SourceUnavailable as error:
            since = self._silent_since.setdefault(shard, time.monotonic())
            silent = timedelta(seconds=time.monotonic() - since)
            return Silence(error=error, left=self._gone_after - silent)
        self._silent_since.pop(shard, None)
        return None

    def streams(self) -> Mapping[str, Client]:
        """The config servers, and all shards."""
        hosts = self.read_shards()
        return {CONFIG: self.config, **{name: self.of(name, host) for name, host in hosts.items()}}

    def host(self, shard: str) -> str:
        """Of a shard that was connected. The newest: it may get other members, or be removed and added again."""
        return self._hosts[shard]

    def of(self, shard: str, host: str = "") -> Client:
        """The client of a shard. `host`: needed the first time. Those of its former hosts stay open, as other threads may read there."""
        with self._lock:
            host = self._hosts[shard] = host or self._hosts[shard]
            if host not in self._clients:
                uri = shard_uri(self._uri, host)
                self._clients[host] = connect(uri, app_name=self._app_name, capture=self._capture)
            return self._clients[host]


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """It does not answer. `left`: how long it is still waited for."""

    error: SourceUnavailable
    left: timedelta

    @property
    def over(self) -> bool:
        """Whether the shard is gone."""
        return self.left <= timedelta()

    def told(self, why: str) -> SourceUnavailable:
        minutes = max(1, round(self.left.total_seconds() / 60))
        return SourceUnavailable(
            f"{why}, and it does not answer: {self.error}; start it again until the changefeed is past that time. In {minutes} min it counts as "
            "gone for good: the tables that it may have had are then lost, and have to be copied anew"
        )


_LONGEST_MS = 10_000
_THREADS = 16


def reach_newest(clients: ClusterClients) -> ClusterTime:
    """Everything that was acknowledged before this call is at or before it, and a majority of each shard has reached it."""
    streams = clients.streams()
    with ThreadPoolExecutor(_THREADS, "clock") as threads:
        points = list(threads.map(_newest, streams.items()))
        newest_ts, proof = max(points, key=lambda point: point[0])
        for _ in threads.map(lambda name: _reach(name, streams[name], newest_ts, proof), streams):
            pass
    return newest_ts


def reach(clients: ClusterClients, at_least_ts: ClusterTime) -> ClusterTime:
    """A time that all shards have reached, not before the one that is wanted: some shard has it."""
    reached_ts = reach_newest(clients)
    if reached_ts < at_least_ts:
        raise SourceUnavailable(f"the source's shards have reached {reached_ts}, expected {at_least_ts} or later")
    return reached_ts


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
    with client.start_session(causal_consistency=False) as session:
        nudge(name, client, session, to_ts, proof)


def nudge(
    name: str, client: Client, session: ClientSession, to_ts: ClusterTime, proof: Mapping[str, Any] | None
) -> None:
    """Has the shard write a no-op at or after that time, by a read. `proof`: that the cluster has reached it."""
    if proof is not None:
        session.advance_cluster_time(proof)
    command = {
        "find": OPLOG.coll,
        "filter": {"ts": to_ts.to_bson()},
        "projection": {"ts": 1},
        "limit": 1,
        "readConcern": {"level": "majority", "afterClusterTime": to_ts.to_bson()},
        "maxTimeMS": _LONGEST_MS,
    }
    with translated(f"asking {name} to reach {to_ts}"):
        read_command(client, OPLOG.db, command, session=session)


_OF_ONE_SET = frozenset({"replicaset", "directconnection", "loadbalanced", "srvservicename", "srvmaxhosts"})
_SRV = "mongodb+srv://"


def shard_uri(source: str, host: str) -> str:
    """`host` is that of `config.shards`."""
    name, separator, members = host.partition("/")
    if not separator:
        raise SourceUnsupported(f"the host of a shard in config.shards is {host!r}, without the name of a replica set")
    _, _, rest = source.partition("://")
    authority, _, tail = rest.partition("/")
    if "?" in authority:
        authority, _, options = authority.partition("?")
        database = ""
    else:
        database, _, options = tail.partition("?")
    user = authority.rpartition("@")[0]
    stated = [each for each in options.split("&") if each and each.partition("=")[0].lower() not in _OF_ONE_SET]
    if source.startswith(_SRV) and not any(each.lower().startswith(("tls=", "ssl=")) for each in stated):
        stated.append("tls=true")
    who = f"{user}@" if user else ""
    return f"mongodb://{who}{members}/{database}?{'&'.join([f'replicaSet={name}', *stated])}"
