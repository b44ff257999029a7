"""Expiry at the target: switched off while replicating, and how it is switched on again.

A target that expires documents races the updates still on their way: a document whose date is being extended at the source would
be deleted here, and the update would find nothing. So under `ttl: deferred` only the source expires, and its deletes are
replicated. The schema store keeps the true values; `restore_ttl` brings them back at cut-over.

Off means, for a TTL index, the largest `expireAfterSeconds` the server takes: an index cannot be made one with expiry
later before 5.1, and the key and the name of this one are then already right. From 6.0 on that is 68 years, so a date before 1958 would still
expire; before, createIndexes takes no more than the seconds since 1970, of which 53 years are used here, the same ones in each command. A clustered or
time-series collection is created without its `expireAfterSeconds`, which collMod sets later and turns `off`.
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
    """An index specification, or the `index` of a collMod, with its expiry as the target shall have it."""
    if EXPIRY not in index:
        return dict(index)
    return dict(index) | {EXPIRY: never if ttl is Ttl.DEFERRED else _seconds(index[EXPIRY], never)}


def table_expiry(options: Mapping[str, Any], ttl: Ttl) -> dict[str, Any]:
    """The options of a collection to create."""
    if ttl is Ttl.COPIED:
        return dict(options)
    return {name: value for name, value in options.items() if name != EXPIRY}


def modified_expiry(changes: Mapping[str, Any], ttl: Ttl, never: int = NEVER_SECONDS) -> dict[str, Any]:
    """The fields of a collMod."""
    changed = dict(changes)
    if EXPIRY in changed and ttl is Ttl.DEFERRED:
        changed[EXPIRY] = "off"
    if "index" in changed:
        changed["index"] = index_expiry(changed["index"], ttl, never)
    return changed


def restore_ttl(name: TableName, schema: TableSchema) -> tuple[DdlCommand, ...]:
    """For cut-over: every expiry of a table as the source has it. `name` is the table's downstream. Harmless when run again."""
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
    """Old servers let NaN and too large numbers into an index; newer ones read these as the largest, and refuse them in commands."""
    return never if math.isnan(value) or value > never else value
