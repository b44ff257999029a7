"""A definition as the target gets it: an index that createIndexes accepts, and expiry that is off until cut-over. Pure.

**Expiry.** A target that expires documents races with updates that are still to be replicated: it would delete a document whose date is
extended at the source, and the update would find no document. So under `ttl: deferred` only the source expires documents, and its deletes
are replicated. The schema store keeps the source's values, which a cut-over sets.

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
from changefeed.documents.document import key_as_written

_NOT_OPTIONS = frozenset({"v", "ns", "background", "dropDups", "safe", "buildUUID", "clustered"})
"""The storage format, fields that the server adds, and obsolete options."""

SIMPLE: Mapping[str, Any] = {"locale": "simple"}


def index_specification(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The target chooses the storage format (`v`), as for an index that a user creates there.

    A server shows an index with simple collation without a collation, in catalog, event and oplog, whatever the collation of its
    collection. createIndexes would then use the collection's collation, so simple collation is named.

    `prepareUnique` is left out: only collMod sets it.
    """
    wanted = {name: value for name, value in spec.items() if name not in _NOT_OPTIONS and name != "prepareUnique"}
    wanted["collation"] = without_version(spec.get("collation", SIMPLE))
    return wanted | {"key": key_as_written(spec)}


def without_version(collation: Mapping[str, Any]) -> dict[str, Any]:
    """A server refuses the version of another ICU library, and uses its own version when none is given."""
    return {name: value for name, value in collation.items() if name != "version"}


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


def _seconds(value: Any, never: int) -> Any:
    """Old servers accept NaN and too large numbers in an index; newer ones read them as the largest value, and refuse them in commands."""
    return never if math.isnan(value) or value > never else value
