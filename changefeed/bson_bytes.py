"""`elements`: BSON by offset, the positions of a document's elements, without decoding their values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct

from changefeed.errors import InvariantError

_INT32: Callable[[bytes, int], tuple[int]] = Struct("<i").unpack_from

STRING = 0x02
DOCUMENT = 0x03
ARRAY = 0x04
NULL = 0x0A
TIMESTAMP = 0x11
_BINARY, _REGEX, _DB_POINTER, _SCOPED_CODE = 0x05, 0x0B, 0x0C, 0x0F
_FIXED = {
    0x01: 8,
    0x06: 0,
    0x07: 12,
    0x08: 1,
    0x09: 8,
    NULL: 0,
    0x10: 4,
    TIMESTAMP: 8,
    0x12: 8,
    0x13: 16,
    0x7F: 0,
    0xFF: 0,
}
USUAL_SIZES = {0x07: 12, 0x10: 4, 0x12: 8, 0x01: 8, 0x09: 8}
"""The sizes of the values that keys usually have."""
_PREFIXED = {STRING: 4, 0x0D: 4, 0x0E: 4, DOCUMENT: 0, ARRAY: 0, _SCOPED_CODE: 0, _BINARY: 5, _DB_POINTER: 16}


class MalformedBson(InvariantError):
    """These bytes are not BSON."""


def elements(document: bytes, at: int = 0) -> Iterator[tuple[bytes, int, int, int]]:
    """Name, type and span of the value of each element of the document that starts at `at`."""
    end = at + _INT32(document, at)[0] - 1
    at += 4
    while at < end:
        kind = document[at]
        name_end = document.index(0, at + 1)
        value_end = value_end_of(document, kind, name_end + 1)
        yield document[at + 1 : name_end], kind, name_end + 1, value_end
        at = value_end
    if at != end or document[end] != 0:
        raise MalformedBson(f"a document's elements end at byte {at}, but by its size they should end at byte {end}")


def value_end_of(document: bytes, kind: int, at: int) -> int:
    """Where the value of that type ends that begins there."""
    fixed = _FIXED.get(kind)
    if fixed is not None:
        return at + fixed
    prefix = _PREFIXED.get(kind)
    if prefix is not None:
        return at + prefix + _INT32(document, at)[0]
    if kind == _REGEX:
        return document.index(0, document.index(0, at) + 1) + 1
    raise MalformedBson(f"type 0x{kind:02x} at byte {at} is not a BSON type")


def documents_of(array: bytes, at: int, end: int) -> list[bytes]:
    """The documents of an array of documents. Keys are "0", "1", ... so only their width matters."""
    found: list[bytes] = []
    append = found.append
    at, end = at + 4, end - 1
    width, widens_at = 3, 10
    while at < end:
        if len(found) == widens_at:
            width, widens_at = width + 1, widens_at * 10
        at += width
        document_end = at + _INT32(array, at)[0]
        append(array[at:document_end])
        at = document_end
    if at != end:
        raise MalformedBson(f"an array's documents end at byte {at}, but by its size they should end at byte {end}")
    return found


def fields_of(document: bytes) -> dict[bytes, bytes]:
    """Each whole element (type, name and value) by its name."""
    return {name: document[at - len(name) - 2 : end] for name, _, at, end in elements(document)}


def document_of(body: list[bytes]) -> bytes:
    """A document of whole elements."""
    size = 5 + sum(map(len, body))
    return b"".join((size.to_bytes(4, "little"), *body, b"\x00"))


def element(kind: int, name: bytes, value: bytes) -> bytes:
    return b"%c%s\0%s" % (kind, name, value)


def string(text: bytes) -> bytes:
    """The value of an element."""
    return (len(text) + 1).to_bytes(4, "little") + text + b"\0"


def array(values: Iterable[tuple[int, bytes]]) -> bytes:
    """Of types and values."""
    return document_of([element(kind, b"%d" % number, value) for number, (kind, value) in enumerate(values)])
