"""The messages of the wire protocol, as a server reads and writes them: OP_MSG, and the one OP_QUERY with which drivers begin."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from struct import Struct
from typing import Any, NamedTuple

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

_HEADER, _QUERY_REPLY = Struct("<iiii"), Struct("<iiiiiqii")
_REPLY, _QUERY, _MESSAGE = 1, 2004, 2013
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)
_CHECKSUM, _MORE_TO_COME = 1, 2


class Asked(NamedTuple):
    """The documents inside the command stay as they came."""

    number: int
    old: bool
    command: dict[str, Any]
    answered: bool
    """Whether the client waits for an answer."""


def read(connection: socket.socket) -> Asked | None:
    """None when the client has gone."""
    header = _exactly(connection, _HEADER.size)
    if header is None:
        return None
    size, number, _, code = _HEADER.unpack(header)
    body = _exactly(connection, size - _HEADER.size)
    if body is None:
        return None
    if code == _QUERY:
        at = body.index(0, 4) + 1 + 8
        return Asked(number, True, dict(RawBSONDocument(body[at : at + _size(body, at)], _RAW)), True)
    assert code == _MESSAGE, f"a message of kind {code}"
    flags = _size(body, 0)
    end = len(body) - (4 if flags & _CHECKSUM else 0)
    return Asked(number, False, _sections(body, end), not flags & _MORE_TO_COME)


def written(asked: Asked, reply: Mapping[str, Any]) -> bytes:
    document = bson.encode(reply)
    if asked.old:
        head = _QUERY_REPLY.pack(_QUERY_REPLY.size + len(document), 0, asked.number, _REPLY, 8, 0, 0, 1)
        return head + document
    return _HEADER.pack(_HEADER.size + 5 + len(document), 0, asked.number, _MESSAGE) + bytes(5) + document


def _sections(body: bytes, end: int) -> dict[str, Any]:
    command: dict[str, Any] = {}
    sequences: dict[str, list[RawBSONDocument]] = {}
    at = 4
    while at < end:
        kind, at = body[at], at + 1
        stop = at + _size(body, at)
        if kind == 0:
            command = dict(RawBSONDocument(body[at:stop], _RAW))
        else:
            name_end = body.index(0, at + 4)
            found = sequences.setdefault(body[at + 4 : name_end].decode(), [])
            at = name_end + 1
            while at < stop:
                found.append(RawBSONDocument(body[at : at + _size(body, at)], _RAW))
                at += _size(body, at)
        at = stop
    return {**command, **sequences}


def _size(body: bytes, at: int) -> int:
    return int.from_bytes(body[at : at + 4], "little")


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    read = bytearray()
    while len(read) < size:
        part = connection.recv(size - len(read))
        if not part:
            return None
        read += part
    return bytes(read)
