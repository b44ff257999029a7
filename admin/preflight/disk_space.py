"""`disk_spaces`: how large tables are at the source, and how much disk is free at the target for copies beside the present tables.

`releases`: those of both, for what only a server of the same release reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pymongo.errors import PyMongoError

from changefeed.config.configuration import Configuration
from changefeed.errors import WrongState
from changefeed.table import TableName
from credentials.secrets import expanded
from sink.opening import target_client
from source.connection import Client
from source.connection import connect as connect_to_source

_NAME = "sluice-preflight"
_SHARE = 0.9
"""Of the free disk, that tables may take without a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpaces:
    """`sizes`: by the names at the source, with the indexes, as they are stored there. `free`: by the target's database. What is missing is not known."""

    sizes: Mapping[TableName, int]
    free: Mapping[str, int]

    def warnings(self, tables: Mapping[TableName, TableName]) -> Iterator[str]:
        """`tables`: names at the source, with those at the target."""
        by_database: dict[str, list[TableName]] = defaultdict(list)
        for name, target in tables.items():
            by_database[target.db].append(name)
        for db, names in sorted(by_database.items()):
            needed, free = sum(self.sizes.get(name, 0) for name in names), self.free.get(db)
            if free is None:
                yield f"the target does not say how much disk is free for {db}; the copies take it beside the present tables"
            elif needed > _SHARE * free:
                yield (
                    f"the copies in {db} take about {needed / 1e9:,.1f} GB beside the present tables, and the target has {free / 1e9:,.1f} GB free; "
                    "make room, or copy fewer tables at a time"
                )


def disk_spaces(configuration: Configuration, tables: Mapping[TableName, TableName]) -> DiskSpaces:
    """Asks both sides. What one does not answer, or does not allow, is not known."""
    with (
        closing(connect_to_source(expanded(configuration.source), app_name=_NAME, capture=None)) as source,
        target_client(configuration) as sink,
    ):
        if sink is None:
            return DiskSpaces(sizes={}, free={})
        stats = {name: _asked(source, name.db, {"collStats": name.coll}) for name in tables}
        disks = {db: _asked(sink, db, {"dbStats": 1}) for db in sorted({target.db for target in tables.values()})}
    return DiskSpaces(
        sizes={name: int(found["storageSize"] + found["totalIndexSize"]) for name, found in stats.items() if found},
        free={
            db: int(found["fsTotalSize"] - found["fsUsedSize"]) for db, found in disks.items() if "fsTotalSize" in found
        },
    )


def releases(configuration: Configuration) -> tuple[tuple[int, int], tuple[int, int]]:
    with (
        closing(connect_to_source(expanded(configuration.source), app_name=_NAME, capture=None)) as source,
        target_client(configuration) as sink,
    ):
        assert sink is not None, "expected a MongoDB, since only that has time series"
        return _release(source, "source"), _release(sink, "target")


def _release(client: Client, side: str) -> tuple[int, int]:
    found = _asked(client, "admin", {"buildInfo": 1}).get("versionArray")
    if not found:
        raise WrongState(
            f"the {side} does not say its release, on which a time series depends; look whether it is reachable"
        )
    return found[0], found[1]


def _asked(client: Client, db: str, command: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return client[db].command(dict(command))
    except PyMongoError:
        return {}
