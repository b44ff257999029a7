"""How a DDL changes the definition of one table: options, indexes, shard key; and what a DDL of buckets means for their time series. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from changefeed.documents.document import Document
from changefeed.errors import InvariantError
from changefeed.event import DdlEvent, DdlType
from changefeed.table import (
    TableId,
    TableKind,
    TableName,
    TableSchema,
    is_meant,
    kind_of,
    modified_index,
    specification,
)

_Fields = dict[str, Any]

_NOT_OPTIONS = frozenset({"comment", "writeConcern", "dryRun"})
"""Arguments of the collMod command, not options of the collection."""

_INTERNAL = frozenset({"timeseriesBucketsMayHaveMixedSchemaData", "timeseriesBucketingParametersHaveChanged"})
"""Flags that the server writes into its own catalog and shows nowhere else."""

_SPAN_SECONDS = {"seconds": 3_600, "minutes": 86_400, "hours": 2_592_000}
"""The value that the server gives `bucketMaxSpanSeconds` for each granularity."""


def created(event: DdlEvent, table: TableId, name: TableName) -> TableSchema:
    """A collection has its `_id` index from the start. Views, time-series and clustered collections have none."""
    options = event.description.decode()
    id_index = options.pop("idIndex", None)
    kind = kind_of(options)
    indexes: tuple[Document, ...] = ()
    if kind is TableKind.COLLECTION and not options.get("clusteredIndex"):
        indexes = (specification(id_index or _default_id_index(options)),)
    return TableSchema(
        id=table, name=name, kind=kind, options=Document.of(options), indexes=indexes, valid_from=event.position
    )


def new_uuid(event: DdlEvent) -> TableId:
    """That of the rows from a `newUuid` on."""
    return TableId(event.description.decode()["uuid"])


def with_uuid(table: TableSchema, event: DdlEvent) -> TableSchema:
    uuid = new_uuid(event)
    return table if uuid in (table.id, *table.uuids) else replace(table, uuids=(*table.uuids, uuid))


def enters(event: DdlEvent) -> bool:
    if event.type is DdlType.ENTER:
        return True
    return event.type is DdlType.RENAME and "options" in event.description.decode()


def later_uuids(event: DdlEvent) -> tuple[TableId, ...]:
    """Those besides its table's first one that rows may have from a `newUuid` on, or once a table has come back that was in the filter before.

    A definition may be megabytes, and is decoded only if it tells some.
    """
    if event.type is DdlType.NEW_UUID:
        return (new_uuid(event),)
    comes_back = event.type in (DdlType.RENAME, DdlType.ENTER) and b"\x04uuids\0" in event.description.raw
    return tuple(map(TableId, event.description.decode().get("uuids", ()))) if comes_back else ()


def _default_id_index(options: _Fields) -> _Fields:
    index: _Fields = {"v": 2, "key": {"_id": 1}, "name": "_id_"}
    if "collation" in options:
        index["collation"] = options["collation"]
    return index


def with_indexes(table: TableSchema, event: DdlEvent) -> TableSchema:
    """Idempotent by name: shards repeat a createIndexes, and a later collMod may have changed the index."""
    present = {index["name"]: index for index in _decoded(table.indexes)}
    added = []
    for index in event.description.decode()["indexes"]:
        known = present.get(index["name"])
        if known is None:
            present[index["name"]] = index
            added.append(specification(index))
        elif not _same_key(known["key"], index["key"]):
            raise InvariantError(
                f"{event}: index {index['name']!r} of {table.name} has the key {known['key']}, but is created again "
                f"with the key {index['key']} although it was not dropped"
            )
    return replace(table, indexes=(*table.indexes, *added))


def _same_key(one: _Fields, other: _Fields) -> bool:
    """The key of a text index has two forms: its fields, or `_fts` and `_ftsx` with weights."""
    if any("_fts" in key or "text" in key.values() for key in (one, other)):
        return True
    return list(one.items()) == list(other.items())


def without_indexes(table: TableSchema, event: DdlEvent) -> TableSchema:
    """Idempotent: shards repeat a dropIndexes."""
    dropped = {index["name"] for index in event.description.decode()["indexes"]}
    kept = tuple(index for index in table.indexes if index.decode()["name"] not in dropped)
    return replace(table, indexes=kept)


def resharded(table: TableSchema, event: DdlEvent) -> TableSchema:
    return replace(table, shard_key=Document.of(event.description.decode()["shardKey"]))


_VALIDATION = {"validator": None, "validationLevel": "strict", "validationAction": "error"}
"""After a collMod of one of these, the server always shows level and action. After a create it leaves them out."""


def modified(table: TableSchema, event: DdlEvent) -> TableSchema:
    """By collMod. A field without its own rule is the option of the same name."""
    options = table.options.decode()
    indexes = table.indexes
    for field, value in event.description.decode().items():
        if field in _NOT_OPTIONS or field in _INTERNAL:
            continue
        if field == "index":
            indexes = _modified_indexes(table, event, value)
        else:
            _modify_option(options, field, value)
    if _VALIDATION.keys() & event.description.decode().keys():
        options = {**options, **{field: options.get(field, default) for field, default in _VALIDATION.items()}}
        options = {field: value for field, value in options.items() if value is not None}
    return replace(table, options=Document.of(options), indexes=indexes)


def _modify_option(options: _Fields, field: str, value: Any) -> None:
    """As listCollections shows it afterwards: an option that is switched off is not shown."""
    match field:
        case "cappedSize":
            options["size"] = value
        case "cappedMax":
            _set_or_remove(options, "max", value, shown=value != 0)
        case "validator":
            _set_or_remove(options, field, value, shown=bool(value))
        case "changeStreamPreAndPostImages":
            _set_or_remove(options, field, value, shown=bool(value.get("enabled")))
        case "recordPreImages":
            _set_or_remove(options, field, value, shown=bool(value))
        case "expireAfterSeconds":
            _set_or_remove(options, field, value, shown=value != "off")
        case "timeseries":
            options["timeseries"] = _modified_timeseries(options.get("timeseries", {}), value)
        case _:
            options[field] = value


def _set_or_remove(fields: _Fields, field: str, value: Any, *, shown: bool) -> None:
    if shown:
        fields[field] = value
    else:
        fields.pop(field, None)


def _modified_timeseries(timeseries: _Fields, change: _Fields) -> _Fields:
    """A granularity and explicit bucket spans exclude each other; the later one wins."""
    result = {**timeseries, **change}
    if "granularity" in change:
        result["bucketMaxSpanSeconds"] = _SPAN_SECONDS[change["granularity"]]
        result.pop("bucketRoundingSeconds", None)
    elif "bucketMaxSpanSeconds" in change:
        result.pop("granularity", None)
    return result


def _modified_indexes(table: TableSchema, event: DdlEvent, change: _Fields) -> tuple[Document, ...]:
    found = [position for position, index in enumerate(_decoded(table.indexes)) if is_meant(index, change)]
    if len(found) != 1:
        names = [index["name"] for index in _decoded(table.indexes)]
        wanted = change.get("name", change.get("keyPattern"))
        raise InvariantError(f"{event}: changes index {wanted!r} of {table.name}, whose known indexes are {names}")
    (position,) = found
    return (
        *table.indexes[:position],
        modified_index(table.indexes[position], change),
        *table.indexes[position + 1 :],
    )


def _decoded(indexes: Iterable[Document]) -> list[_Fields]:
    return [index.decode() for index in indexes]


_META = "meta"
_MIN, _MAX = "control.min.", "control.max."
_ORIGINAL = "originalSpec"
_OF_INDEXES = frozenset({DdlType.CREATE_INDEXES, DdlType.DROP_INDEXES})


def in_measurements(event: DdlEvent, table: TableSchema) -> DdlEvent:
    """Return a DDL of the indexes of buckets as one of the indexes that a user sees on the time series, any other DDL as it is.

    The oplog shows the indexes that the server keeps on the buckets; a user names fields of measurements. For timeField `at` and metaField `m`:

        on the buckets                                          on the time series
        {meta: 1, control.min.at: 1, control.max.at: 1}         {m: 1, at: 1}
        {control.max.at: -1, control.min.at: -1}                {at: -1}
        {meta.k: "hashed"}                                      {m.k: "hashed"}
        {control.min.x: 1, control.max.x: 1}, originalSpec      originalSpec, since 6.0: of indexes that such a rule does not tell

    This is what listIndexes of the time series does. It is the form in which the target builds them.
    A collMod names its index.
    """
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
