"""`index_expiry`, `table_expiry`, `restore_ttl`: expiry is off at the target during replication, and restored at cut-over. Pure.

A target that expires documents races with updates that are still to be replicated: it would delete a document whose date is extended
at the source, and the update would find no document. So under `ttl: deferred` only the source expires documents, and its deletes are
replicated. The schema store keeps the source's values; `restore_ttl` sets them at cut-over.

For a TTL index, off means the largest `expireAfterSeconds` that the server accepts: before 5.1 an index without expiry cannot get one
later, and this index already has the right key and name. From 6.0 on the largest value is 68 years, so a date before 1958 would still
expire. Before 6.0 createIndexes accepts at most the seconds since 1970; a constant 53 years is used, equal in each command.
A clustered or time-series collection is created without its `expireAfterSeconds`; collMod sets it later, or sets it to `off`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from changefeed.config.configuration import Ttl
from changefeed.table import TableName, TableSchema
from sink.mongodb.command import DdlCommand

EXPIRY = "expireAfterSeconds"
NEVER_SECONDS = 2**31 - 1
NEVER_SECONDS_BEFORE_6_0 = 1_700_000_000


def index_expiry(index: Mapping[str, Any], ttl: Ttl, never: int = NEVER_SECONDS) -> dict[str, Any]:
    """An index specification, or the `index` of a collMod, with the expiry for the target."""
    if EXPIRY not in index:
        return dict(index)
    return dict(index) | {EXPIRY: never if ttl is Ttl.DEFERRED else _seconds(index[EXPIRY], never)}


def table_expiry(options: Mapping[str, Any], ttl: Ttl) -> dict[str, Any]:
    """The options of a collection to be created, with the expiry for the target."""
    if ttl is Ttl.COPIED:
        return dict(options)
    return {name: value for name, value in options.items() if name != EXPIRY}


def modified_expiry(changes: Mapping[str, Any], ttl: Ttl, never: int = NEVER_SECONDS) -> dict[str, Any]:
    """The fields of a collMod, with the expiry for the target."""
    changed = dict(changes)
    if EXPIRY in changed and ttl is Ttl.DEFERRED:
        changed[EXPIRY] = "off"
    if "index" in changed:
        changed["index"] = index_expiry(changed["index"], ttl, never)
    return changed


def restore_ttl(name: TableName, schema: TableSchema) -> tuple[DdlCommand, ...]:
    """The commands for cut-over: they give a table the source's expiries. `name` is its downstream name. They may be run again."""
    commands = []
    options = schema.options.decode()
    if EXPIRY in options:
        commands.append(DdlCommand(name.db, {"collMod": name.coll, EXPIRY: options[EXPIRY]}))
    for index in (specification.decode() for specification in schema.indexes):
        if EXPIRY in index:
            expiry = {"name": index["name"], EXPIRY: _seconds(index[EXPIRY], NEVER_SECONDS)}
            commands.append(DdlCommand(name.db, {"collMod": name.coll, "index": expiry}))
    return tuple(commands)


def _seconds(value: Any, never: int) -> Any:
    """Old servers accept NaN and too large numbers in an index; newer ones read them as the largest value, and refuse them in commands."""
    return never if math.isnan(value) or value > never else value
