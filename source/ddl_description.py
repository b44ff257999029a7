"""`describe`: the description of a DDL, the same for an event of a change stream and an entry of the oplog. Pure.

An index is described as a user would write it (`normalised_index`), whether it comes from listIndexes, an event or the oplog.

Views are described by their options, and so are the time-series collections that look like views (`created_view`, `modified_view`):
the server stores a time-series collection as `system.buckets.<name>` and a view over it. Servers with that view show only the view in
the stream; the first stage of its pipeline contains the time-series options.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from bson.binary import UUID_SUBTYPE, Binary
from bson.codec_options import CodecOptions, DatetimeConversion

from changefeed.documents.document import EMPTY, Document, key_as_written
from changefeed.event import DdlType
from changefeed.table import TableId, TableName


def uuid_of(value: Any) -> TableId | None:
    """From a BSON UUID, in any form that the driver decodes it to."""
    if value is None or isinstance(value, bool):
        return None
    return TableId(value.hex() if isinstance(value, bytes) else value.hex)


def bson_uuid(id: TableId) -> Binary:
    return Binary(bytes.fromhex(id), UUID_SUBTYPE)


ANY_TEXT: CodecOptions[dict[str, Any]] = CodecOptions(
    dict,
    tz_aware=True,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="surrogateescape",
)


def printable(name: str) -> str:
    """Servers take texts that are no UTF-8, also in names. With `ANY_TEXT` they are read with surrogates, which cannot be written anywhere."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def printable_name(table: TableName | None) -> TableName | None:
    return table and TableName(printable(table.db), printable(table.coll))


def is_utf8(*names: object) -> bool:
    try:
        check_names(*names)
    except UnicodeError:
        return False
    return True


def check_names(*names: object) -> None:
    """Raises UnicodeEncodeError for one that is no UTF-8."""
    "".join(map(str, names)).encode()


def shown(fields: Mapping[str, Any]) -> Document:
    """For a message, whatever it holds."""
    try:
        return Document.of(fields)
    except Exception:  # noqa: BLE001
        return Document.of({"found": ascii(fields)})


def describe(ddl_type: DdlType, stated: Mapping[str, Any]) -> Document:
    """The value of `DdlEvent.description`, from the operation as the server describes it."""
    if not stated:
        return EMPTY
    match ddl_type:
        case DdlType.CREATE_INDEXES | DdlType.DROP_INDEXES:
            return indexes_description(stated["indexes"])
        case DdlType.CREATE:
            return Document.of(_created(stated))
        case DdlType.MODIFY if "viewOn" in stated and is_timeseries(stated):
            return Document.of(modified_view(stated))
        case DdlType.RENAME | DdlType.DROP | DdlType.DROP_DATABASE:
            return Document.of(stated) if "timeseries" in stated else EMPTY
        case _:
            return Document.of(stated)


def _created(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Without `temp`: a starting server drops temporary collections, and only the source decides which of them become permanent."""
    if "viewOn" in stated:
        return created_view(stated)
    options = {name: value for name, value in stated.items() if name != "temp"}
    if "idIndex" in options:
        options["idIndex"] = normalised_index(options["idIndex"])
    return options


def wall_ms_of(wall: Any) -> int | None:
    return int(wall.timestamp() * 1000) if isinstance(wall, datetime) else None


_FIRST = ("v", "key", "name")
_NOT_OURS = frozenset({"ns", "buildUUID", "background"})


def normalised_index(spec: Mapping[str, Any]) -> dict[str, Any]:
    """`v`, `key` and `name` first, then the options by name, so that equal indexes are equal bytes.

    Left out are `ns`, the namespace that servers up to 4.2 repeat, and `background`, which has no meaning since 4.2.
    """
    fields = {**spec, "key": key_as_written(spec)} if "key" in spec else dict(spec)
    names = [name for name in _FIRST if name in fields]
    names += sorted(name for name in fields if name not in _FIRST and name not in _NOT_OURS)
    return {name: fields[name] for name in names}


def index_document(spec: Mapping[str, Any]) -> Document:
    return Document.of(normalised_index(spec))


def indexes_description(specs: Iterable[Mapping[str, Any]], *, presumed: Sequence[str] = ()) -> Document:
    """The `operationDescription` of createIndexes and dropIndexes. `presumed`: the names of those that the table may have had before."""
    indexes = {"indexes": [normalised_index(spec) for spec in specs]}
    return Document.of(indexes | ({"presumed": [*presumed]} if presumed else {}))


_BUCKETS = "system.buckets."
_UNPACK = "$_internalUnpackBucket"
_GRANULARITY_OF_SPAN = {3600: "seconds", 86400: "minutes", 2592000: "hours"}


def is_timeseries(definition: Mapping[str, Any]) -> bool:
    return str(definition.get("viewOn", "")).startswith(_BUCKETS)


def created_view(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a `create` of the same view or time-series collection."""
    if not is_timeseries(definition):
        return _without_name(definition)
    unpack = _unpack_stage(definition)
    names = {name: unpack[name] for name in ("timeField", "metaField") if name in unpack}
    return {"timeseries": names | _span(unpack)}


def modified_view(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `collMod` that gives a view this definition. Of a time series only the bucket span can change."""
    if not is_timeseries(definition):
        return _without_name(definition)
    return {"timeseries": _span(_unpack_stage(definition))}


def _without_name(definition: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in definition.items() if name != "_id"}


def _unpack_stage(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    stage: Mapping[str, Any] = next((stage[_UNPACK] for stage in definition["pipeline"] if _UNPACK in stage), {})
    return stage


def _span(unpack: Mapping[str, Any]) -> dict[str, Any]:
    """A span that equals one of the three granularities is given as that granularity: `create` accepts one of the two, not both."""
    span = unpack.get("bucketMaxSpanSeconds")
    if span is None:
        return {}
    if span in _GRANULARITY_OF_SPAN:
        return {"granularity": _GRANULARITY_OF_SPAN[span]}
    return {"bucketMaxSpanSeconds": span, "bucketRoundingSeconds": span}
