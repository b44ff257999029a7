"""What messages are keyed by: `message_key`, and a row's key as JSON. Pure, and called for each change.

`message_key` is a row's `_id`, as BSON. The server takes 7, 7.0, NumberLong(7) and Decimal128("7.0") for one `_id`, so they have one key and stay in one partition. Otherwise
the deletion of 7 and the insertion of 7.0 after it would be read in any order. The key of

    ObjectId, string, date, binary, ...         {_id: the value}, byte for byte
    an integral number within 64 bits           {_id: NumberLong}
    other numbers                               {_id: Decimal128}, without trailing zeros
    a document or an array                      the same with each number in it

The fields of a shard key are left out: they may change while the row stays the same.

`key_json` and `keys_json` are a row's key as canonical Extended JSON: as the source has it, and also as its messages are keyed. Most keys are one ObjectId or integer, which is written at once; the others go through `to_json` and `message_key`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

import bson
from bson.decimal128 import Decimal128

from changefeed.bson_bytes import ARRAY, DOCUMENT, document_of, element, elements
from changefeed.documents.row_key import canonical, id_alone, only_id, row_key
from sluice_client.extended_json import to_json

_INTEGER, _DECIMAL = 0x12, 0x13
_NUMBERS = frozenset({0x01, 0x10, _INTEGER, _DECIMAL})
_INT_KEY, _LONG_KEY = b"\x0e\0\0\0\x10_id\0", b"\x12\0\0\0\x12_id\0"
"""Their sizes leave no room for another field."""
_AT = len(_LONG_KEY)
_ID = b"_id"

_int32: Callable[[bytes, int], tuple[int]] = Struct("<i").unpack_from
_long: Callable[[int], bytes] = Struct("<q").pack


def message_key(document_key: bytes) -> bytes:
    """From a raw `documentKey`."""
    if document_key.startswith(_INT_KEY):
        return b"".join((_LONG_KEY, _long(_int32(document_key, _AT)[0]), b"\0"))
    if document_key.startswith(_LONG_KEY):
        return document_key
    if not only_id(document_key):
        return _plain(id_alone(document_key))
    found = row_key(document_key)
    if found is document_key:
        return document_key
    if found[0] == _INTEGER and len(found) == 9:
        return _LONG_KEY + found[1:] + b"\0"
    return _plain(document_key)


def _plain(document: bytes) -> bytes:
    return document_of([_plain_element(name, kind, document[at:end]) for name, kind, at, end in elements(document)])


def _plain_element(name: bytes, kind: int, value: bytes) -> bytes:
    if kind in (DOCUMENT, ARRAY):
        return element(kind, name, _plain(value))
    if kind not in _NUMBERS:
        return element(kind, name, value)
    found = canonical(bson.decode(document_of([element(kind, b"", value)]))[""])
    if found[0] == _INTEGER:
        return element(_INTEGER, name, found[1:])
    return element(_DECIMAL, name, Decimal128(found[1:].decode()).bid)


_KEY_AT = 9
"""Where the value of a document that begins with `_id` stands."""
_OBJECT_ID, _INT32, _INT64 = 0x07, 0x10, 0x12
_SIZES = {_OBJECT_ID: 22, _INT32: 14, _INT64: 18}
"""Of a document that has nothing else."""

_int64: Callable[[bytes, int], tuple[int]] = Struct("<q").unpack_from


def key_json(key: bytes) -> str:
    """As the source has it."""
    return keys_json(key)[0] if _SIZES.get(key[4]) == len(key) else to_json(key)


def keys_json(key: bytes) -> tuple[str, str]:
    """As the source has it, and as messages are keyed."""
    if key[5:_KEY_AT] == b"_id\0" and _SIZES.get(kind := key[4]) == len(key):
        if kind == _INT32:
            number = _int32(key, _KEY_AT)[0]
            return f'{{"_id": {{"$numberInt": "{number}"}}}}', f'{{"_id": {{"$numberLong": "{number}"}}}}'
        text = f'"$numberLong": "{_int64(key, _AT)[0]}"' if kind == _INT64 else f'"$oid": "{key[_AT:21].hex()}"'
        text = f'{{"_id": {{{text}}}}}'
        return text, text
    text, keyed = to_json(key), message_key(key)
    return text, text if keyed is key else to_json(keyed)
