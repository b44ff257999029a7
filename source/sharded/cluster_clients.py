"""`ClusterClients`: the connections to the config servers and the shards of a source."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Self

from changefeed.capture import Capture
from changefeed.errors import SourceUnsupported
from source.connection import HELLO, Client, connect, read_command, version_of
from source.errors import translated
from source.sharded.hosts.feature_version import FEATURES, feature_version
from source.sharded.hosts.former_shards import FormerShards, Silence
from source.sharded.hosts.shard_uri import shard_uri

CONFIG = "config"
"""The stream of the config servers. No shard may have this name: the server keeps it for the config shard of 8.0."""
_OLDEST = (5, 0)
"""Older shards have no coordinators of DDL, and their chunks are not known by a UUID."""


class ClusterClients:
    """For all threads. `uri` names the config servers; `credentials` are those of single shards, by name."""

    def __init__(
        self,
        uri: str,
        *,
        credentials: Mapping[str, str] | None = None,
        app_name: str = "sluice",
        capture: Capture | None = Capture.SHARD_OPLOGS,
        gone_after: timedelta | None = None,
    ) -> None:
        """`capture`: None reads the primaries, for reads that must be as new as every acknowledged write. `gone_after`: see `FormerShards`."""
        self._uri, self._app_name, self._capture = uri, app_name, capture
        self._credentials = dict(credentials or {})
        self._clients: dict[str, Client] = {CONFIG: connect(uri, app_name=app_name, capture=capture)}
        self._hosts: dict[str, str] = {}
        self._former = FormerShards(gone_after)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
            reply = read_command(
                self.config, CONFIG, {"find": "shards", "readConcern": {"level": "majority"}, "batchSize": 10_000}
            )
        return {shard["_id"]: shard["host"] for shard in reply["cursor"]["firstBatch"]}

    def read_former_host(self, shard: str) -> str | None:
        """Of a shard that was removed, as the config servers' log of changes has it. None: no longer."""
        added = {"what": "addShard", "details.name": shard}
        command = {"find": "changelog", "filter": added, "sort": {"$natural": -1}, "limit": 1}
        with translated(f"looking for the former shard {shard} in config.changelog"):
            found = read_command(self.config, CONFIG, command)["cursor"]["firstBatch"]
        return str(found[0]["details"]["host"]) if found else None

    def silence(self, shard: str, host: str) -> Silence | None:
        """Of a shard that was removed. None: it answers, or it is a shard again."""
        if shard in self.read_shards():
            return None

        def ping() -> None:
            with translated(f"asking the former shard {shard} at {host}"):
                read_command(self.of(shard, host), "admin", {"ping": 1})

        return self._former.ask(shard, ping)

    def host(self, shard: str) -> str:
        """Of a shard that was connected."""
        return self._hosts[shard]

    def of(self, stream: str, host: str = "") -> Client:
        """The client of a stream. `host`: needed the first time."""
        with self._lock:
            if stream not in self._clients:
                self._hosts[stream] = host or self._hosts[stream]
                uri = shard_uri(self._uri, self._hosts[stream], self._credentials.get(stream))
                self._clients[stream] = connect(uri, app_name=self._app_name, capture=self._capture)
            return self._clients[stream]
