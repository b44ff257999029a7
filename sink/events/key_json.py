"""`key_json`, `keys_json`: a row's key as canonical Extended JSON: as the source has it, and also as its messages are keyed. Pure.

Called for each change. Most keys are one ObjectId or integer, which is written at once; the others go through `to_json` and `message_key`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from sink.events.extended_json import to_json
from sink.events.message_key import message_key

_ID = b"_id\0"
_AT = 9
"""Where the value of a document that begins with `_id` stands."""
_OBJECT_ID, _INT32, _INT64 = 0x07, 0x10, 0x12
_SIZES = {_OBJECT_ID: 22, _INT32: 14, _INT64: 18}
"""Of a document that has nothing else."""

_int32: Callable[[bytes, int], tuple[int]] = Struct("<i").unpack_from
_int64: Callable[[bytes, int], tuple[int]] = Struct("<q").unpack_from


def key_json(key: bytes) -> str:
    """As the source has it."""
    return keys_json(key)[0] if _SIZES.get(key[4]) == len(key) else to_json(key)


def keys_json(key: bytes) -> tuple[str, str]:
    """As the source has it, and as messages are keyed."""
    if key[5:_AT] == _ID and _SIZES.get(kind := key[4]) == len(key):
        if kind == _INT32:
            number = _int32(key, _AT)[0]
            return f'{{"_id": {{"$numberInt": "{number}"}}}}', f'{{"_id": {{"$numberLong": "{number}"}}}}'
        text = f'"$numberLong": "{_int64(key, _AT)[0]}"' if kind == _INT64 else f'"$oid": "{key[_AT:21].hex()}"'
        text = f'{{"_id": {{{text}}}}}'
        return text, text
    text, keyed = to_json(key), message_key(key)
    return text, text if keyed is key else to_json(keyed)
