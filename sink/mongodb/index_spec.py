"""Index specifications: as listIndexes and change streams show them, and as createIndexes takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from changefeed.index_key import key_as_written

_NOT_OPTIONS = frozenset({"v", "ns", "background", "dropDups", "safe", "buildUUID", "clustered"})
"""The storage format, notes of the server, and options that no longer mean anything."""


def index_specification(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What createIndexes takes. The target chooses the storage format (`v`), as for an index created there by hand.

    `prepareUnique` is left out: it is a state that only collMod sets.
    """
    wanted = {name: value for name, value in spec.items() if name not in _NOT_OPTIONS and name != "prepareUnique"}
    if "collation" in wanted:
        wanted["collation"] = without_version(wanted["collation"])
    return wanted | {"key": key_as_written(spec)}


def without_version(collation: Mapping[str, Any]) -> dict[str, Any]:
    """A server refuses the version of another ICU library, and takes none for its own."""
    return {name: value for name, value in collation.items() if name != "version"}
