"""MongoDB's resume tokens, written as mongod 7 and later write them: KeyStrings of version 2, in hex.

    82 T 2B04 29     29 6E 14 04            high water mark at T
    82 T 2B04 2C0100 29 6E 5A1004<UUID> 46<{operationType, documentKey}> 04     event; 29 is its place in its transaction

`source/resume_token.py` reads them and shares no code with this: what one gets wrong the other finds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import bson
from bson import ObjectId
from bson.timestamp import Timestamp

_TIMESTAMP = b"\x82"
_VERSION_2 = b"\x2b\x04"
_ZERO = b"\x29"
_EVENT = b"\x2c\x01\x00"
_FALSE, _TRUE = b"\x6e", b"\x6f"
_NULL = b"\x14"
_END = b"\x04"
_HEAD = 11
_SMALLEST_NUMBER = 0x2B


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What the server needs of a token that comes back: where to go on."""

    ts: Timestamp
    event: bool
    op_index: int
    from_invalidate: bool
    fragment: bool = False


def high_water_mark(ts: Timestamp) -> str:
    return (_stamp(ts) + _ZERO + _ZERO + _FALSE + _NULL + _END).hex().upper()


def event_token(
    ts: Timestamp, op_index: int, uuid: bytes | None, identity: Mapping[str, Any], *, from_invalidate: bool = False
) -> str:
    head = _stamp(ts) + _EVENT + _whole_number(op_index) + (_TRUE if from_invalidate else _FALSE)
    table = _NULL if uuid is None else b"\x5a\x10\x04" + uuid
    return (head + table + _value(identity) + _END).hex().upper()


def fragment_token(token: str, number: int) -> str:
    """Of fragment `number`, from 0, of the event that has this token."""
    return (bytes.fromhex(token)[:-1] + _whole_number(number) + _END).hex().upper()


def read(token: str) -> Place:
    """Raises ValueError for what is no token."""
    data = bytes.fromhex(token)
    if data[:1] != _TIMESTAMP or data[9:_HEAD] != _VERSION_2 or len(data) < _HEAD + 4:
        raise ValueError("resume token is not a KeyString of version 2")
    ts = Timestamp(int.from_bytes(data[1:5], "big"), int.from_bytes(data[5:9], "big"))
    event = data[_HEAD:].startswith(_EVENT)
    at = _HEAD + (len(_EVENT) if event else len(_ZERO))
    op_index, at = _read_whole_number(data, at)
    fragment = (
        event and data[-2:-1] != b"\0"
    )  # an event's identity ends with a zero byte, the number of a fragment never does
    return Place(ts=ts, event=event, op_index=op_index, from_invalidate=data[at : at + 1] == _TRUE, fragment=fragment)


def _stamp(ts: Timestamp) -> bytes:
    return _TIMESTAMP + ts.time.to_bytes(4, "big") + ts.inc.to_bytes(4, "big") + _VERSION_2


def _whole_number(value: int) -> bytes:
    """Not negative: its length in the type byte, then its value shifted left by one."""
    if value == 0:
        return _ZERO
    size = (value.bit_length() + 8) // 8
    return bytes((_SMALLEST_NUMBER + size - 1,)) + (value << 1).to_bytes(size, "big")


def _read_whole_number(data: bytes, at: int) -> tuple[int, int]:
    if data[at : at + 1] == _ZERO:
        return 0, at + 1
    size = data[at] - _SMALLEST_NUMBER + 1
    if not 1 <= size <= 8 or at + 1 + size > len(data):
        raise ValueError("resume token has no whole number where its place in the transaction stands")
    return int.from_bytes(data[at + 1 : at + 1 + size], "big") >> 1, at + 1 + size


def _value(value: object) -> bytes:
    """Kinds that documents' keys usually have are as mongod writes them; of others only equality counts here, so their BSON stands in."""
    match value:
        case bool():
            written = _TRUE if value else _FALSE
        case int() if value >= 0:
            written = _whole_number(value)
        case str():
            written = b"\x3c" + value.encode().replace(b"\0", b"\0\xff") + b"\0"
        case ObjectId():
            written = b"\x64" + value.binary
        case None:
            written = _NULL
        case Mapping():
            written = b"\x46" + b"".join(_field(name, item) for name, item in value.items()) + b"\0"
        case _:
            raw = bson.encode({"": value})
            size = b"\xff" + len(raw).to_bytes(4, "big") if len(raw) > 254 else bytes((len(raw),))
            written = b"\x5a" + size + b"\0" + raw
    return written


def _field(name: str, value: object) -> bytes:
    written = _value(value)
    kind = b"\x1e" if 0x23 <= written[0] <= 0x32 else b"\x6e" if written[0] == 0x6F else written[:1]
    return kind + name.encode() + b"\0" + written
