"""What SecantusDB does differently from MongoDB, corrected. Each function is one correction and says how MongoDB behaves."""

from __future__ import annotations

from typing import Any

from secantus import storage

from devstack import collection_uuid


def keep_acknowledged_writes_when_killed() -> None:
    """A killed mongod has every acknowledged write: its journal is with the operating system before the answer leaves.

    Here journal records would wait in the process. They are handed to the operating system at commit, without waiting for the disk.
    """
    opened = storage.wt.wiredtiger_open

    def open_storage(home: str, config: str) -> Any:
        return opened(
            home,
            config.replace(
                "transaction_sync=(enabled=false,method=fsync)", "transaction_sync=(enabled=true,method=none)"
            ),
        )

    storage.wt.wiredtiger_open = open_storage


def install() -> None:
    """All corrections, in this process. Before the server is made."""
    keep_acknowledged_writes_when_killed()
    collection_uuid.install()
