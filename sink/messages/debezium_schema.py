"""`key_schema`, `value_schema`: the schemas of Debezium's messages of one table, as Kafka Connect's converter of JSON writes them. Pure.

They are those of Debezium 2.7.4 (the tests compare them with the ones that its classes make), with `ts_us` and `ts_ns` of the envelope,
which 3.x has. Documents are strings, so there is one constant schema for a table, whatever its documents have.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeAlias

_Schema: TypeAlias = dict[str, Any]


def key_schema(topic: str) -> str:
    return json.dumps(_struct([_field("id", "string")], name=f"{topic}.Key"), ensure_ascii=False)


def value_schema(topic: str) -> str:
    return json.dumps(_struct(_ENVELOPE, name=f"{topic}.Envelope"), ensure_ascii=False)


def _field(field: str, type: str | _Schema, *, optional: bool = False, **more: Any) -> _Schema:
    kind = {"type": type} if isinstance(type, str) else type
    return {**kind, "optional": optional, **more, "field": field}


def _struct(fields: Iterable[_Schema], **more: Any) -> _Schema:
    return {"type": "struct", "fields": list(fields), "optional": False, **more}


def _array(items: _Schema) -> _Schema:
    return {"type": "array", "items": {**items, "optional": False}}


def _document(field: str) -> _Schema:
    return _field(field, "string", optional=True, name="io.debezium.data.Json", version=1)


_TRUNCATED = _struct(
    [_field("field", "string"), _field("size", "int32")],
    name="io.debezium.connector.mongodb.changestream.truncatedarray",
    version=1,
)
_UPDATE = _struct(
    [
        _field("removedFields", _array({"type": "string"}), optional=True),
        _document("updatedFields"),
        _field("truncatedArrays", _array(_TRUNCATED), optional=True),
    ],
    name="io.debezium.connector.mongodb.changestream.updatedescription",
    version=1,
)
_SNAPSHOT: _Schema = {
    "name": "io.debezium.data.Enum",
    "version": 1,
    "parameters": {"allowed": "true,last,false,incremental"},
    "default": "false",
}
_SOURCE = _struct(
    [
        *(_field(name, "string") for name in ("version", "connector", "name")),
        _field("ts_ms", "int64"),
        _field("snapshot", "string", optional=True, **_SNAPSHOT),
        _field("db", "string"),
        _field("sequence", "string", optional=True),
        *(_field(name, "int64", optional=True) for name in ("ts_us", "ts_ns")),
        _field("collection", "string"),
        _field("ord", "int32"),
        _field("lsid", "string", optional=True),
        *(_field(name, "int64", optional=True) for name in ("txnNumber", "wallTime")),
    ],
    name="io.debezium.connector.mongo.Source",
)
_TRANSACTION = _struct(
    [_field("id", "string"), *(_field(name, "int64") for name in ("total_order", "data_collection_order"))],
    name="event.block",
    version=1,
)
_ENVELOPE = (
    _document("before"),
    _document("after"),
    _field("updateDescription", _UPDATE, optional=True),
    _field("source", _SOURCE),
    _field("op", "string", optional=True),
    *(_field(name, "int64", optional=True) for name in ("ts_ms", "ts_us", "ts_ns")),
    _field("transaction", _TRANSACTION, optional=True),
)
