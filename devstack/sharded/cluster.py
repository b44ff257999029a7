"""`ShardedCluster`: config servers and shards, each a `ReplicaSet`. Clients reach it by a `ClusterRouter`.

with ShardedCluster(directory, logs) as cluster, cluster.router() as router:
ddl = ClusterDdl(router)
ddl.create_database("shop", primary="sa")
ddl.shard("shop.orders", {"customer": 1})
ddl.split("shop.orders", {"customer": 100})
ddl.move("shop.orders", {"customer": 100}, "sb")
router.insert("shop.orders", {"_id": 1, "customer": 5})
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.security import Security
from devstack.mongodb.server import TESTING, Client
from devstack.process import ServerFailed, side_by_side, wait_until
from devstack.sharded.router import ClusterRouter
from devstack.sharded.wire import MAJORITY, Wire

CONFIG = "cfg"
_REMOVED_WITHIN_SECONDS = 120
_QUICK = {
    **TESTING,
    "shutdownTimeoutMillisForSignaledShutdown": "100",
    # else a chunk that has just left a shard cannot come back for a quarter of an hour
    "orphanCleanupDelaySecs": "0",
}
_QUICK_CONFIG = {"reshardingMinimumOperationDurationMillis": "0"}
"""Otherwise five minutes for each resharding."""


class ShardedCluster:
    """`members`: of each shard and of the config servers. The balancer does not run until it is `balanced`.

    `security`: all have its key file, and each has its administrator, as whom routers come.
    """

    def __init__(
        self,
        directory: Path,
        logs: Path,
        *,
        shards: Sequence[str] = ("sa", "sb"),
        members: int = 1,
        version: str | None = None,
        cache_gb: float = 0.25,
        security: Security | None = None,
    ) -> None:
        self._security = security
        self.version: tuple[int, ...] = ()
        self._directory, self._logs, self._members = directory, logs, members
        self._settings: dict[str, Any] = {"version": version, "cache_gb": cache_gb, "oplog_mb": 200}
        self.config = self._set(CONFIG, "--configsvr", _QUICK | _QUICK_CONFIG, config_servers=True)
        self.shards = {name: self._shard(name) for name in shards}
        self._running = ExitStack()

    def start(self) -> Self:
        with ExitStack() as stopping:
            sets = [self.config, *self.shards.values()]
            stopping.callback(lambda: side_by_side([each.stop for each in [*self.shards.values(), self.config]]))
            side_by_side([each.start for each in sets])
            with self.config.client() as client:
                self.version = tuple(client.server_info()["versionArray"][:2])
            self.balanced(False)
            for name in self.shards:
                self._admit(name)
            self._running = stopping.pop_all()
        return self

    def stop(self) -> None:
        """May be called again."""
        self._running.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def router(self) -> ClusterRouter:
        """For one thread."""
        return ClusterRouter(lambda name: self._wire(self._set_of(name)), CONFIG, self.version)

    def balanced(self, on: bool) -> None:
        """A running balancer looks for work several times a second, where users have ten seconds."""
        pace = {"configureFailPoint": "overrideBalanceRoundInterval", "mode": "alwaysOn", "data": {"intervalMs": 200}}
        if on:
            self._ask_config(pace)
        self._ask_config({f"_configsvrBalancer{'Start' if on else 'Stop'}": 1, "maxTimeMS": 30_000})

    def add_shard(self, name: str, prepare: Callable[[Client], object] = lambda _: None) -> None:
        """`prepare`: what it has before it is a shard."""
        self.shards[name] = self._shard(name)
        self.shards[name].start()
        with self.shards[name].client() as client:
            prepare(client)
        self._admit(name)

    def remove_shard(self, name: str) -> None:
        self.drain_shard(name)
        self.shards.pop(name).stop()

    def drain_shard(self, name: str) -> None:
        """Its chunks and databases have to be moved away before, or by the balancer meanwhile. It goes on running."""

        def removed() -> bool:
            return bool(
                self._ask_config({"_configsvrRemoveShard": name, "writeConcern": MAJORITY})["state"] == "completed"
            )

        if not wait_until(removed, _REMOVED_WITHIN_SECONDS):
            raise ServerFailed(f"shard {name} was not removed within {_REMOVED_WITHIN_SECONDS} s")

    def _admit(self, name: str) -> None:
        where = f"{name}/{','.join(self.shards[name].addresses)}"
        self._ask_config({"_configsvrAddShard": where, "name": name, "writeConcern": MAJORITY})

    def _ask_config(self, command: dict[str, Any]) -> dict[str, Any]:
        with self._wire(self.config) as wire:
            return wire.command("admin", command)

    def _wire(self, to: ReplicaSet) -> Wire:
        user = self._security.administrator if self._security else {}
        return Wire(to.primary().port, user=user.get("username", ""), password=user.get("password", ""))

    def _set_of(self, name: str) -> ReplicaSet:
        return self.config if name == CONFIG else self.shards[name]

    def _shard(self, name: str) -> ReplicaSet:
        return self._set(name, "--shardsvr", _QUICK)

    def _set(self, name: str, role: str, parameters: dict[str, str], *, config_servers: bool = False) -> ReplicaSet:
        return ReplicaSet(
            name,
            self._directory,
            self._logs,
            size=self._members,
            election_timeout_ms=2_000,
            options=(role,),
            config_servers=config_servers,
            security=self._security,
            parameters=parameters,
            **self._settings,
        )
