"""`UniqueValues`: the values through which a row change depends on other rows of its table. Pure.

A worked example, a table with a unique index `u` and a unique, sparse index `tags.name`:

    insert {_id: 1, u: 7, tags: [{name: a}, {name: b}]}      _id 1    u 7              tags.name a, b
    update 1: u 7 -> 8.0                                     _id 1    u 7, u 8         tags.name a, b
    update 2: u 8 -> null                                    _id 2    u 8, u null
    update 2: u null -> 8, its pre-image is gone             unknown

Changes without a common value commute: their rows cannot conflict. Two values that the server treats as equal must never look different
here; the opposite mistake costs only parallelism. So each value is eight bytes of a hash, a partial index counts as a full one, and the
keys that an index makes of an array are overestimated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import product
from math import prod
from typing import Any, Self

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from changefeed.bson_bytes import document_of, elements
from changefeed.documents.bson_order import MISSING
from changefeed.documents.row_key import canonical, row_key
from changefeed.table import TableSchema
from processor.task.shuffle.routing import divisible, unique_indexes
from source.raw.row_header import Header

DIGEST_BYTES = 8
UNKNOWN = b""
"""The values of the change are unknown: it depends on every other change of its table."""

_MOST_KEYS = 1_000
"""Per document and index. A change with more keys counts as unknown."""
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(
    RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS, unicode_decode_error_handler="replace"
)
"""No date is out of range, and no document becomes a DBRef. Replaced bytes of invalid UTF-8 can only make different values equal."""


class UniqueValues:
    """The unique values of one version of a table."""

    def __init__(self, seed: bytes, indexes: Sequence[dict[str, Any]]) -> None:
        self._seed = seed
        self._indexes = [
            (index["name"].encode(), [path.split(".") for path in index["key"]], bool(index.get("sparse")))
            for index in indexes
        ]
        self._fields = {path[0].encode() for _, paths, _ in self._indexes for path in paths}

    @classmethod
    def of(cls, schema: TableSchema) -> Self | None:
        return cls(schema.id.encode(), unique_indexes(schema)) if divisible(schema) else None

    def of_change(self, event: bytes, header: Header) -> bytes:
        """The digests of the change's values, concatenated. `UNKNOWN` if the event lacks an image."""
        kind = header.type
        images = []
        if kind != b"insert":
            images.append(event[header.before_at : header.before_end])
        if kind != b"delete":
            images.append(event[header.full_at : header.full_end])
        if not all(images):
            return UNKNOWN
        digests = dict.fromkeys([self._digest(b"_id", row_key(header.key))])
        for part in dict.fromkeys(map(self._indexed, images)):
            keys = self._keys(part)
            if keys is None:
                return UNKNOWN
            digests.update(keys)
        return b"".join(digests)

    def _indexed(self, image: bytes) -> bytes:
        """The indexed fields of a document. Most updates change none of them."""
        fields = self._fields
        return document_of([image[at - len(name) - 2 : end] for name, _, at, end in elements(image) if name in fields])

    def _keys(self, part: bytes) -> dict[bytes, None] | None:
        """The document's keys in each index. None if there are too many."""
        document = RawBSONDocument(part, _RAW)
        digests: dict[bytes, None] = {}
        for name, paths, sparse in self._indexes:
            values = [list(_reached(document, path)) for path in paths]
            if sparse and all(reached == [MISSING] for reached in values):
                continue
            if prod(map(len, values)) > _MOST_KEYS:
                return None
            for key in product(*values):
                digests[self._digest(name, canonical([None if part is MISSING else part for part in key]))] = None
        return digests

    def _digest(self, name: bytes, value: bytes) -> bytes:
        return blake2b(b"\x00".join((self._seed, name, value)), digest_size=DIGEST_BYTES).digest()


def _reached(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """All values that an index may find at the end of a path."""
    if isinstance(value, list):
        for reached in _reached_in_array(value, path):
            yield None if reached is MISSING else reached
    elif not path:
        yield value
    elif isinstance(value, Mapping) and path[0] in value:
        yield from _reached(value[path[0]], path[1:])
    else:
        yield MISSING


def _reached_in_array(array: list[Any], path: Sequence[str]) -> Iterator[Any]:
    """The elements, and the element that a number in the path may mean. An empty array is indexed as undefined, which is null here."""
    if not array:
        yield None
    for element in array:
        if not path:
            yield element
            continue
        if isinstance(element, list):
            yield None
        yield from _reached(element, path)
    if path and path[0].isdecimal() and int(path[0]) < len(array):
        yield array[int(path[0])]
        yield from _reached(array[int(path[0])], path[1:])
