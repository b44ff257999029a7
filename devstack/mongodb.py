"""`MongoDB`: a MongoDB-compatible server of its own, a replica set of one member."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from devstack.ports import free_port
from devstack.process import ServerProcess

Client = MongoClient[dict[str, Any]]
_ROOT = Path(__file__).parents[1]
_ENV = Path("/usr/bin/env")


class MongoDB(ServerProcess):
    """SecantusDB, started by our launcher, which makes it behave as MongoDB where it matters (docs/development.md)."""

    def __init__(
        self, name: str, directory: Path, log: Path, *, port: int | None = None, oplog_entries: int = 10_000_000
    ) -> None:
        """`oplog_entries` bounds the oplog; SecantusDB's own bound of 100,000 would lose the history of a test that loads more."""
        super().__init__(name, directory, log)
        self.port = port or free_port()
        self._oplog_entries = oplog_entries

    @property
    def uri(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/?replicaSet=secantus"

    @property
    def ports(self) -> tuple[int, ...]:
        return (self.port,)

    def command(self) -> list[str]:
        return [
            *(str(_ENV), f"PYTHONPATH={_ROOT}", "PYTHONUNBUFFERED=1", sys.executable, "-m", "devstack.launcher"),
            *("--port", str(self.port), "--storage-path", str(self.directory)),
            *("--oplog-max-entries", str(self._oplog_entries)),
        ]

    def ready(self) -> bool:
        try:
            with Client("127.0.0.1", self.port, directConnection=True, serverSelectionTimeoutMS=500) as client:
                return bool(client.admin.command("hello")["isWritablePrimary"])
        except PyMongoError:
            return False
