"""`in_measurements`: a DDL of the indexes of buckets as one of the indexes that a user sees on the time series. Pure.

The oplog shows the indexes that the server keeps on the buckets; a user names fields of measurements. For timeField `at` and metaField `m`:

    on the buckets                                          on the time series
    {meta: 1, control.min.at: 1, control.max.at: 1}         {m: 1, at: 1}
    {control.max.at: -1, control.min.at: -1}                {at: -1}
    {meta.k: "hashed"}                                      {m.k: "hashed"}
    {control.min.x: 1, control.max.x: 1}, originalSpec      originalSpec, since 6.0: of indexes that such a rule does not tell

This is what listIndexes of the time series does. It is the form in which the target builds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from changefeed.documents.document import Document
from changefeed.event import DdlEvent, DdlType
from changefeed.table import TableSchema

_META = "meta"
_MIN, _MAX = "control.min.", "control.max."
_ORIGINAL = "originalSpec"
_OF_INDEXES = frozenset({DdlType.CREATE_INDEXES, DdlType.DROP_INDEXES})


def in_measurements(event: DdlEvent, table: TableSchema) -> DdlEvent:
    """Any other DDL as it is. A collMod names its index."""
    if event.type not in _OF_INDEXES or not table.bucketed:
        return event
    described = event.description.decode()
    meta = str(table.options.decode().get("timeseries", {}).get("metaField", _META))
    indexes = [_measured(index, meta) for index in described.get("indexes", ())]
    return replace(event, description=Document.of(described | {"indexes": indexes}))


def _measured(index: Mapping[str, Any], meta: str) -> dict[str, Any]:
    original = index.get(_ORIGINAL)
    if original is not None:
        return {name: original[name] for name in original}
    return {name: _key(value, meta) if name == "key" else value for name, value in index.items()}


def _key(key: Mapping[str, Any], meta: str) -> dict[str, Any]:
    """The bounds of a field stand for the field, in the order of the first of them."""
    found: dict[str, Any] = {}
    for path, order in key.items():
        if path == _META or path.startswith(f"{_META}."):
            found[meta + path.removeprefix(_META)] = order
        else:
            found.setdefault(path.removeprefix(_MIN).removeprefix(_MAX), order)
    return found
