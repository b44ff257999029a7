"""`index_specification`: turns an index as listIndexes and change streams show it into one that createIndexes accepts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
