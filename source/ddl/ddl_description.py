"""`describe`: the description of a DDL, the same for an event of a change stream and an entry of the oplog. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bson.codec_options import CodecOptions, DatetimeConversion

from changefeed.documents.document import EMPTY, Document
from changefeed.event import DdlType
from changefeed.table import TableId
from source.ddl.index_spec import indexes_description, normalised_index
from source.ddl.view_definition import created_view, is_timeseries, modified_view


def uuid_of(value: Any) -> TableId | None:
    """From a BSON UUID, in any form that the driver decodes it to."""
    if value is None or isinstance(value, bool):
        return None
    return TableId(value.hex() if isinstance(value, bytes) else value.hex)


ANY_TEXT: CodecOptions[dict[str, Any]] = CodecOptions(
    dict,
    tz_aware=True,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="surrogateescape",
)


def printable(name: str) -> str:
    """Servers take texts that are no UTF-8, also in names. With `ANY_TEXT` they are read with surrogates, which cannot be written anywhere."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


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
