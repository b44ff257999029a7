"""`refuse_orphans`, `balancer_runs`: whether documents stand, or may come, on shards that do not own them."""

from __future__ import annotations

from changefeed.errors import SourceUnsupported
from source.connection import Client, read_command
from source.errors import translated
from source.sharded.tables.orphan_guard import MIGRATIONS, RANGES, REMEDY

_MAJORITY = {"level": "majority"}
_MOVES_NOTHING = ("off", "autoSplitOnly")


def refuse_orphans(client: Client, shard: str) -> None:
    """Raises `SourceUnsupported` if the shard gives or takes a chunk, or has not deleted what one has left."""
    for name in (MIGRATIONS, RANGES):
        command = {"find": name.coll, "limit": 1, "singleBatch": True, "readConcern": _MAJORITY}
        with translated(f"reading {name} of shard {shard}"):
            found = read_command(client, name.db, command)["cursor"]["firstBatch"]
        if found:
            raise SourceUnsupported(f"shard {shard} has orphaned documents of {found[0]['nss']}, by {name}: {REMEDY}")


def balancer_runs(client: Client) -> bool:
    """As the config servers take their settings: without any, it does."""
    command = {"find": "settings", "filter": {"_id": "balancer"}, "readConcern": _MAJORITY}
    with translated("reading config.settings"):
        found = read_command(client, "config", command)["cursor"]["firstBatch"]
    said = found[0] if found else {}
    return not said.get("stopped") and said.get("mode", "full") not in _MOVES_NOTHING
