"""Makes a server's oplog drop its old entries."""

from __future__ import annotations

from collections.abc import Callable

from bson.timestamp import Timestamp

from devstack.mongodb.server import Client
from devstack.process import wait_until

_TIMEOUT_SECONDS = 60.0
_FILLING = bytes(512 * 1024)
"""An oplog entry larger than the oplog ends a server of 4.4."""


def forget(client: Client, before: Timestamp, follow: Callable[[], object] = lambda: None) -> None:
    """Writes until the oplog begins after that time. The server needs a small `oplog_mb` and frequent checkpoints.

    `follow` waits, after each few writes, for readers that are not to lose their place.
    """
    filled = client["forgetful"]["filling"]
    oplog = client["local"]["oplog.rs"]

    def forgotten() -> bool:
        filled.replace_one({"_id": 0}, {"filling": _FILLING}, upsert=True)
        filled.replace_one({"_id": 0}, {"filling": _FILLING[1:]})
        follow()
        return bool(oplog.find().sort("$natural", 1).limit(1).next()["ts"] > before)

    assert wait_until(forgotten, _TIMEOUT_SECONDS), "the oplog kept everything"
