"""`MongoDB`: one real `mongod`, by default a replica set of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from devstack.mongodb.release import Mongod
from devstack.ports import free_port
from devstack.process import ServerProcess

Client = MongoClient[dict[str, Any]]
TESTING = {"enableTestCommands": "1"}
"""Server parameters that allow a test to set failpoints."""

CACHE_GB = 0.5

_ENV = Path("/usr/bin/env")
_OPLOG_MB = 2048
_SMALL_JOURNAL = "log=(prealloc=false,file_max=16MB)"
"""By default each server allocates three files of 100 MB."""
_SPEECHLESS = {"diagnosticDataCollectionEnabled": "false"}


class MongoDB(ServerProcess):
    """`version` is one of `release.VERSIONS`; without it the environment chooses."""

    def __init__(
        self,
        name: str,
        directory: Path,
        log: Path,
        *,
        port: int | None = None,
        version: str | None = None,
        cache_gb: float = CACHE_GB,
        oplog_mb: int = _OPLOG_MB,
        parameters: Mapping[str, str] | None = None,
        options: tuple[str, ...] = (),
        member_of: str | None = None,
    ) -> None:
        """With `member_of`, the set of that name initiates the server; without it the server is a set of one member with its own name."""
        super().__init__(name, directory, log)
        self.port = port or free_port()
        self.replica_set = member_of or name
        self._alone = member_of is None
        self._mongod = Mongod.chosen(version)
        self._cache_gb = cache_gb
        self._oplog_mb = oplog_mb
        self._parameters = {**_SPEECHLESS, **(parameters or {})}
        self._options = options
        self.tls: dict[str, Any] = {}
        self.user: dict[str, Any] = {}
        """The options that a client needs for TLS and for authentication, if any."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def uri(self) -> str:
        return f"mongodb://{self.address}/?replicaSet={self.replica_set}"

    @property
    def ports(self) -> tuple[int, ...]:
        return (self.port,)

    def command(self) -> list[str]:
        return [
            *(str(_ENV), *self._mongod.environment, str(self._mongod.binary)),
            *("--bind_ip", "127.0.0.1", "--port", str(self.port), "--nounixsocket"),
            *("--dbpath", str(self.directory), "--replSet", self.replica_set),
            *("--oplogSize", str(self._oplog_mb), "--wiredTigerCacheSizeGB", str(self._cache_gb)),
            *("--wiredTigerEngineConfigString", _SMALL_JOURNAL),
            *(word for name, value in self._parameters.items() for word in ("--setParameter", f"{name}={value}")),
            *self._options,
        ]

    def ready(self) -> bool:
        try:
            with self.stranger(serverSelectionTimeoutMS=500) as client:
                hello = client.admin.command("hello")
                if self._alone and "setName" not in hello:
                    member = {"_id": 0, "host": self.address}
                    client.admin.command("replSetInitiate", {"_id": self.replica_set, "members": [member]})
                return not self._alone or (hello["isWritablePrimary"] and "majorityOpTime" in hello["lastWrite"])
        except PyMongoError:
            return False

    def client(self, **options: Any) -> Client:
        """A client of this member, in any state of the member."""
        return self.stranger(**self.user, **options)

    def stranger(self, **options: Any) -> Client:
        """A client without authentication; on a set with users it may call little more than `hello`."""
        return Client("127.0.0.1", self.port, directConnection=True, **self.tls, **options)
