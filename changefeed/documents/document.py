"""`Document`: one BSON document, kept as its bytes, so that nothing is lost or reordered. And what is said of the fields that it names."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import bson
from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pydantic import GetCoreSchemaHandler, SerializationInfo
from pydantic_core import CoreSchema, core_schema

REFERENCE = "$large"
"""What a record has instead of a document that stands beside it (`coordination/large_values.py`)."""

BASE64 = "$bson"
"""What a document has that Extended JSON would give back as another one."""

DICT: CodecOptions[dict[str, Any]] = CodecOptions(
    dict, tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
"""A date without a Python `datetime` stays a number: BSON's dates go far beyond the year 9999."""

STRICT: CodecOptions[dict[str, Any]] = CodecOptions(dict, datetime_conversion=DatetimeConversion.DATETIME_MS)
"""Each date is a number."""

LOSSLESS = STRICT.with_options(unicode_decode_error_handler="surrogateescape")
"""And a text that is no UTF-8 has surrogates. The driver does not encode those again (`encoded_text`)."""

RAW: CodecOptions[RawBSONDocument] = CodecOptions(
    RawBSONDocument,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
    unicode_decode_error_handler="surrogateescape",
)
"""As above."""

_JSON = json_util.CANONICAL_JSON_OPTIONS.with_options(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)

_SHOWN = DICT.with_options(unicode_decode_error_handler="replace")

_SMALL = 500
"""Characters of a document that may be kept for the next equal one."""

_REMEMBERED = 1024
"""Many of 100,000 tables have the same options and indexes: each of these is read once, and kept once."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Document:
    """Compared byte by byte, as the server compares documents: field order and number types count.

    In etcd it is canonical Extended JSON, so that `etcdctl get` shows readable text. A validator with the operator `$regex`, or a literal `{"$oid": 1}`,
    would be read as another document: such a one is its bytes, in base64.
    """

    raw: bytes

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Document:
        return cls(bson.encode(fields))

    def decode(self) -> dict[str, Any]:
        return bson.decode(self.raw, DICT)

    def written(self) -> dict[str, Any]:
        """Its form in JSON."""
        return _form(self) if len(self.raw) > _SMALL else _written(self)

    def __str__(self) -> str:
        return json_util.dumps(bson.decode(self.raw, _SHOWN), json_options=_JSON)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def validate(value: object) -> Document:
            if isinstance(value, Document):
                return value
            if value == {}:
                return _EMPTY
            text = json.dumps(value)
            try:
                return _common(text) if len(text) <= _SMALL else _read(text)
            except Exception as error:
                raise ValueError(f"expected a document in Extended JSON, found {error!r}") from error

        def serialize(value: Document, info: SerializationInfo[Any]) -> object:
            """The context may be a function that writes documents otherwise."""
            return value.written() if info.context is None else info.context(value)

        return core_schema.no_info_plain_validator_function(
            validate, serialization=core_schema.plain_serializer_function_ser_schema(serialize, info_arg=True)
        )


_EMPTY = Document.of({})


def _read(text: str) -> Document:
    fields = json_util.loads(text, json_options=_JSON)
    return Document(b64decode(fields[BASE64])) if fields.keys() == {BASE64} else Document.of(fields)


def _form(document: Document) -> dict[str, Any]:
    try:
        text = str(document)
        exact = f'"{REFERENCE}"' not in text and _read(text) == document
    except Exception:  # noqa: BLE001 - whatever Extended JSON makes of names that it takes for its own
        exact = False
    return json.loads(text) if exact else {BASE64: b64encode(document.raw).decode()}


@lru_cache(_REMEMBERED)
def _common(text: str) -> Document:
    """One object for equal documents: the options and indexes of most tables are those of many others."""
    return _read(text)


@lru_cache(_REMEMBERED)
def _written(document: Document) -> dict[str, Any]:
    return _form(document)


EMPTY = Document.of({})


def encoded_text(text: str) -> bytes:
    """The bytes that it was decoded from."""
    return text.encode("utf-8", "surrogateescape")


def field_names(document: bytes, at: int = 0) -> tuple[str, ...]:
    """Of the fields of the document that starts at `at`, each once. Of its values, no text needs to be UTF-8; of a name, `UnicodeError` is raised."""
    names = (*bson.decode(document[at : at + int.from_bytes(document[at : at + 4], "little")], LOSSLESS),)
    if not document.isascii():
        "".join(names).encode()
    return names


class _Unchecked(RawBSONDocument):
    """A command has thousands of them, and the driver's constructor looks at the size and the options of each: four times this."""

    __slots__ = ()

    def __init__(self, document: bytes) -> None:
        self._RawBSONDocument__raw = document
        self._RawBSONDocument__codec_options = RAW
        self._RawBSONDocument__inflated_doc = None


def raw_document(document: bytes) -> RawBSONDocument:
    """Its fields are decoded when one is asked for, and its values keep their bytes. `document`: of a server, or encoded here."""
    return _Unchecked(document)


def key_as_written(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Servers store a text index's key as `{_fts: "text", _ftsx: 1}` and its fields in `weights`. createIndexes expects the fields."""
    key: dict[str, Any] = {}
    for field, way in spec["key"].items():
        if field == "_fts":
            key |= dict.fromkeys(sorted(spec.get("weights", {})), "text")
        elif field != "_ftsx":
            key[field] = way
    return key


def meet(one: str, other: str) -> bool:
    """Whether one path is the other, or leads through it."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")
