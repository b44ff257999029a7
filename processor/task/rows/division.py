"""`divide`: divides a divisible table's changes in a wide window among the buckets. Pure.

    slices, in parallel     read with images; each change of a divided table carries its `UniqueValues`, no image
    ──shuffle──▶ one task for each divided table: forms components, gives each a bucket
    ──shuffle──▶ buckets, in parallel

Changes that share a value, directly or through other changes, form one component. One bucket applies a component in order. Other
components share no value with it, so they may be ahead or behind: none of their rows can conflict with its rows. A worked example:

    1: u one -> aside      {id 1, one, aside}      component 0
    2: u two -> one        {id 2, two, one}        component 0
    3: u six -> seven      {id 3, six, seven}      component 2

A table with a change of unknown values is one component. A table is not divided where events are replayed, nor while its initial copy
lacks changes: the target is then ahead, its rows have values of later windows, and waiting for these needs one order.

**Unique values** (`UniqueValues`) are those through which a row change depends on other rows of its table. A worked example, a table with a
unique index `u` and a unique, sparse index `tags.name`:

    insert {_id: 1, u: 7, tags: [{name: a}, {name: b}]}      _id 1    u 7              tags.name a, b
    update 1: u 7 -> 8.0                                     _id 1    u 7, u 8         tags.name a, b
    update 2: u 8 -> null                                    _id 2    u 8, u null
    update 2: u null -> 8, its pre-image is gone             unknown

Changes without a common value commute: their rows cannot conflict. Two values that the server treats as equal must never look different
here; the opposite mistake costs only parallelism. So each value is eight bytes of a hash, a partial index counts as a full one, and the
keys that an index makes of an array are overestimated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import count, product
from math import prod
from typing import Any, Self
from zlib import crc32

from bson.raw_bson import RawBSONDocument

from changefeed.bson_bytes import document_of, elements
from changefeed.config.configuration import OrderBy
from changefeed.documents.bson_order import MISSING
from changefeed.documents.document import RAW
from changefeed.documents.row_key import canonical, row_key
from changefeed.table import TableId, TableSchema
from processor.task.job import JobContext, JobSpec
from processor.task.rows.shuffle import divisible, unique_indexes
from source.raw_row import Header

DIGEST_BYTES = 8
UNKNOWN = b""
"""The values of the change are unknown: it depends on every other change of its table."""

_MOST_KEYS = 1_000
"""Per document and index. A change with more keys counts as unknown."""
_RAW = RAW.with_options(unicode_decode_error_handler="replace")
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


_SIZE_BYTES = 4


def divided_tables(spec: JobSpec, context: JobContext) -> tuple[TableId, ...]:
    """The tables to divide. Creating or dropping an index ends a table's window, so one schema is valid in the whole window."""
    pipeline, job = context.configuration.pipeline, spec.whole(context.tables)
    if not pipeline.pre_images or pipeline.order_by is not OrderBy.AUTO:
        return ()
    tables = []
    for table in context.schemas.perhaps(divisible) - spec.copied.keys():
        window = job.of(table)
        if window is None or window.start < job.replay_of(table):
            continue
        schema = context.schemas.at(table, window.start)
        if schema is not None and pipeline.wants_pre_images(schema.name) and divisible(schema):
            tables.append(table)
    return tuple(sorted(tables))


def linked(values: bytes, event: bytes) -> bytes:
    return b"".join((len(values).to_bytes(_SIZE_BYTES, "little"), values, event))


def _unlinked(blob: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(blob):
        values_at = at + _SIZE_BYTES
        event_at = values_at + int.from_bytes(blob[at:values_at], "little")
        at = event_at + int.from_bytes(blob[event_at : event_at + _SIZE_BYTES], "little")
        yield blob[values_at:event_at], blob[event_at:at]


def divide(chunks: Iterable[tuple[int, bytes]], seed: int, buckets: int) -> Iterator[tuple[int, int, bytes]]:
    """Takes one table's linked events in order, each chunk with its slice. Yields packed events by bucket and slice."""
    held = list(chunks)
    components = Components(values for _, blob in held for values, _ in _unlinked(blob))
    numbers = count()
    for slice_, blob in held:
        spread: dict[int, list[bytes]] = {}
        for _, event in _unlinked(blob):
            component = components.of(next(numbers))
            spread.setdefault(crc32(component.to_bytes(8, "little"), seed) % buckets, []).append(event)
        for bucket, events in spread.items():
            yield bucket, slice_, b"".join(events)


class Components:
    """Which of a window's changes belong together. `changes`: the digests of each change's values."""

    def __init__(self, changes: Iterable[bytes]) -> None:
        self._parents: list[int] = []
        self._one = False
        owners: dict[bytes, int] = {}
        for number, values in enumerate(changes):
            self._parents.append(number)
            self._one = self._one or values == UNKNOWN
            for at in range(0, len(values), DIGEST_BYTES):
                self._join(number, owners.setdefault(values[at : at + DIGEST_BYTES], number))

    def of(self, number: int) -> int:
        """The first change of the component that a change belongs to."""
        return 0 if self._one else self._first(number)

    def _first(self, number: int) -> int:
        while self._parents[number] != number:
            self._parents[number] = self._parents[self._parents[number]]
            number = self._parents[number]
        return number

    def _join(self, one: int, other: int) -> None:
        first, second = sorted((self._first(one), self._first(other)))
        self._parents[second] = first
