"""Index specifications: as listIndexes and change streams show them, and as createIndexes takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from changefeed.documents.index_key import key_as_written

_NOT_OPTIONS = frozenset({"v", "ns", "background", "dropDups", "safe", "buildUUID", "clustered"})
"""The storage format, notes of the server, and options that no longer mean anything."""

SIMPLE: Mapping[str, Any] = {"locale": "simple"}


def index_specification(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What createIndexes takes. The target chooses the storage format (`v`), as for an index created there by hand.

    A server shows an index of simple collation without any, in catalog, event and oplog, whatever the collation of its collection. The
    command would take none for the collection's own, so simple is said.

    `prepareUnique` is left out: it is a state that only collMod sets.
    """
    wanted = {name: value for name, value in spec.items() if name not in _NOT_OPTIONS and name != "prepareUnique"}
    wanted["collation"] = without_version(spec.get("collation", SIMPLE))
    return wanted | {"key": key_as_written(spec)}


def without_version(collation: Mapping[str, Any]) -> dict[str, Any]:
    """A server refuses the version of another ICU library, and takes none for its own."""
    return {name: value for name, value in collation.items() if name != "version"}
