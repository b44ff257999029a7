"""`ShardKeys`: the shard keys that the target's tables have, whatever the source's are."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import bson

from changefeed.errors import SinkRefused
from sink.mongodb.commander import Commander
from sink.row import RowChange, TargetTable

_ID = "_id"


class ShardKeys:
    """For one run: a table that is made anew is another `TargetTable`. For several threads."""

    def __init__(self, commander: Commander) -> None:
        """`commander`: of its own, since keys are read while rows are written."""
        self._commander = commander
        self._known: dict[TargetTable, TargetTable] = {}
        self._reading = threading.Lock()

    def known(self, changes: Sequence[RowChange]) -> Sequence[RowChange]:
        """The changes, of tables with their shard keys."""
        with self._reading:
            new = {change.table for change in changes} - self._known.keys()
            if new:
                self._read(new)
            known = self._known
            return [change._replace(table=known[change.table]) for change in changes]

    def _read(self, tables: set[TargetTable]) -> None:
        self._commander.begin()
        names = sorted({str(table.name) for table in tables})
        find = {
            "find": "collections",
            "filter": {"_id": {"$in": names}},
            "batchSize": len(names) + 1,
            "singleBatch": True,
        }
        found = self._commander.found(("config", find), f"reading the shard keys of {len(names)} tables of the target")
        entries = {entry["_id"]: entry for entry in (bson.decode(bytes(each.raw)) for each in found)}
        for table in tables:
            placed = replace(table, shard_key=shard_key_of(entries.get(str(table.name))))
            self._known[table] = self._known[placed] = placed


def shard_key_of(entry: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The fields besides `_id` of an entry of `config.collections`. Empty: the `_id` says where a row is."""
    if entry is None or entry.get("dropped") or entry.get("unsplittable"):
        return ()
    if entry.get("defaultCollation"):
        raise SinkRefused(
            f"{entry['_id']}: it is sharded at the target and has a collation, under which a router does not find one row by its shard key; "
            "drop it there, create it without sharding it, and copy the table anew (`sluice table recopy`)"
        )
    return tuple(path for path in entry["key"] if path != _ID)
