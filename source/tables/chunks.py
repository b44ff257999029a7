"""`divide`: divides a table into chunks that are copied in parallel.

    capped, collation on `_id`                 one, in natural order: the order matters, or only the server knows it
    buckets of a time series before 6.0        one, in natural order: the server takes no bounds there
    up to the size of a chunk                  one
    sharded by {_id: 1}                        the bounds of its ranges in config.chunks, if there are enough
    a replica set whose primary is read        splitVector, which walks the index on `_id`
    if that is refused, takes too long,        the `_id`s of a random sample, as large as it gets within a limit of time
      or finds too few

Bounds only have to be in ascending order. The ranges between them contain every document, also those with `_id`s of other types, since
ranges are read by `min` and `max` along the index, not by comparison. So a table may grow while it is divided, and a sample may be
uneven, or empty: a chunk whose reading takes too long is divided where it is (`bound_at`). A clustered collection has no index on `_id`, but the server accepts `hint: {_id: 1}` with `min` and `max` for it too.

`table_size`, `table_sizes`: how large tables are, by the source's own counters: nothing is counted or read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cmp_to_key, partial
from typing import Any, TypeVar

import structlog
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.raw_bson import RawBSONDocument
from pymongo import ReadPreference
from pymongo.errors import OperationFailure

from changefeed.bson_bytes import STRING, document_of, element, string
from changefeed.documents.bson_order import compare
from changefeed.documents.document import RAW, Document, encoded_text, raw_document
from changefeed.documents.row_key import id_alone
from changefeed.table import TableName, TableSchema, TableSize
from source.connection import Client, deployment_of, is_router, read_command
from source.errors import translated

CHUNK_BYTES = 64 << 20
MOST_CHUNKS = 10_000
_LONGEST_BOUND = 1024
"""In bytes, since bounds are stored in etcd. Of a longer string, the first characters are a bound; another long `_id` is none."""
_PREFIX = 250
_SAMPLES_PER_CHUNK = 16
_LARGEST_SAMPLE = 20_000
"""Each sampled document may be one read of the disk."""
_SMALLEST_FRACTION = 20
"""A sample of more than a twentieth would make the server read the whole table."""
_SPLITTING_MS = 20_000
_BOUNDS_BUCKETS_SINCE = (6, 0)
_ENDS_THE_SAMPLE = frozenset({50, 28799})
"""It took too long, or the server's random cursor went in circles."""


in_id_order = cmp_to_key(compare)

T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """`bounds` ascend; `whole`: one chunk, in natural order. `size`: of the table."""

    bounds: tuple[Document, ...] = ()
    whole: bool = False
    size: TableSize | None = None


def divide(client: Client, schema: TableSchema, *, chunk_bytes: int = CHUNK_BYTES, most: int = MOST_CHUNKS) -> Division:
    with translated(f"dividing {schema.name} into chunks"):
        size = table_size(client, schema.name)
        wanted = chunks_of(schema, size, chunk_bytes=chunk_bytes, most=most)
        unbounded = schema.bucketed and deployment_of(client).version < _BOUNDS_BUCKETS_SINCE
        if wanted <= 1 or unbounded:
            return Division(whole=in_natural_order(schema) or unbounded, size=size)
        found = _known_bounds(client, schema, chunk_bytes)
        if len(found) < wanted // 2:
            found = sampled(client, schema.rows_at(schema.name), size.documents, wanted)
    return divided(schema, size, found, min(wanted, most))


def divided(schema: TableSchema, size: TableSize, found: Iterable[RawBSONDocument], most: int) -> Division:
    """By `_id`s in ascending order."""
    bounds = tuple(_even(_ascending(found), most - 1))
    chunks = len(bounds) + 1
    log.info("table_divided", table=str(schema.name), documents=size.documents, bytes=size.bytes, chunks=chunks)
    return Division(bounds=bounds, size=size)


def chunks_of(schema: TableSchema, size: TableSize, *, chunk_bytes: int = CHUNK_BYTES, most: int = MOST_CHUNKS) -> int:
    """How many are wanted. The source may allow fewer."""
    return 1 if in_natural_order(schema) else max(1, min(most, -(-size.bytes // chunk_bytes)))


def in_natural_order(schema: TableSchema) -> bool:
    options = schema.options.decode()
    collation = options.get("collation", {}).get("locale", "simple")
    return bool(options.get("capped")) or (collation != "simple" and not schema.bucketed)


def _known_bounds(client: Client, schema: TableSchema, chunk_bytes: int) -> list[RawBSONDocument]:
    if not is_router(client):
        return _split_by_server(client, schema.rows_at(schema.name), chunk_bytes)
    if schema.shard_key is not None and list(schema.shard_key.decode().items()) == [("_id", 1)]:
        return _shard_ranges(client, schema)
    return []


def _split_by_server(client: Client, name: TableName, chunk_bytes: int) -> list[RawBSONDocument]:
    """Empty if the server refuses: the user may lack the privilege, and hosted services and secondaries do not allow it."""
    if client.read_preference != ReadPreference.PRIMARY:
        return []
    command = {"splitVector": str(name), "keyPattern": {"_id": 1}, "maxChunkSizeBytes": chunk_bytes}
    try:
        reply = read_command(client, "admin", {**command, "maxTimeMS": _SPLITTING_MS}, codec_options=RAW)
    except OperationFailure as error:
        log.info("table_not_split_by_the_source", table=str(name), code=error.code)
        return []
    return list(reply["splitKeys"])


def _shard_ranges(client: Client, schema: TableSchema) -> list[RawBSONDocument]:
    """Servers before 5.0 store them by the collection's name, later ones by its UUID."""
    config = client.get_database("config", codec_options=RAW)
    entry = config["collections"].find_one({"_id": str(schema.name)}, {"uuid": 1}) or {}
    wanted: list[Mapping[str, Any]] = [{"ns": str(schema.name)}]
    if "uuid" in entry:
        wanted.append({"uuid": entry["uuid"]})
    ranges = config["chunks"].find({"$or": wanted}, {"min": 1}, sort=[("min", 1)])
    return [chunk["min"] for chunk in ranges][1:]


def sampled(client: Client, name: TableName, documents: int, wanted: int) -> list[RawBSONDocument]:
    size = min(wanted * _SAMPLES_PER_CHUNK, _LARGEST_SAMPLE, documents // _SMALLEST_FRACTION)
    if size < 1:
        return []
    stages = [{"$sample": {"size": size}}, {"$project": {"_id": 1}}]
    command = {"aggregate": name.coll, "pipeline": stages, "cursor": {}, "maxTimeMS": _SPLITTING_MS}
    found: list[RawBSONDocument] = []
    try:
        # the replies after the first are decoded as the database says
        database = client.get_database(name.db, codec_options=RAW)
        cursor: Any = database.cursor_command(command, codec_options=RAW, read_preference=client.read_preference)
        with closing(cursor):
            found.extend(document for document in map(_short, cursor) if document is not None)
    except OperationFailure as error:
        if error.code not in _ENDS_THE_SAMPLE:
            raise
        log.info("sample_ended_early", table=str(name), wanted=size, found=len(found), code=error.code)
    return sorted(found, key=lambda document: in_id_order(document["_id"]))


def bound_at(last: bytes, following: bytes) -> Document | None:
    """A bound between two documents, the second of which is beyond it. None if their `_id`s make none."""
    bound = _short(raw_document(id_alone(following)))
    if bound is None or compare(raw_document(id_alone(last))["_id"], bound["_id"]) >= 0:
        return None
    return Document(bytes(bound.raw))


def _short(key: RawBSONDocument) -> RawBSONDocument | None:
    """MinKey and MaxKey are no bounds: a server does not scan from a `min` that nothing can follow, or to a `max` that nothing can precede."""
    value = key["_id"]
    if len(key.raw) > _LONGEST_BOUND:
        if not isinstance(value, str):
            return None
        return raw_document(document_of([element(STRING, b"_id", string(encoded_text(value[:_PREFIX])))]))
    return None if isinstance(value, MinKey | MaxKey) else key


def _ascending(found: Iterable[RawBSONDocument]) -> Iterator[Document]:
    """Each one greater than the one before in `bson_order`, by which changes find their chunk."""
    last: list[Any] = []
    for document in filter(None, map(_short, found)):
        key = document["_id"]
        if not last or compare(last[0], key) < 0:
            last = [key]
            yield Document(bytes(document.raw))


def _even(found: Iterable[T], wanted: int) -> Iterator[T]:
    """`wanted` of them, evenly spread; all if there are not more."""
    values = list(found)
    if len(values) <= wanted:
        return iter(values)
    return (values[(number + 1) * len(values) // (wanted + 1)] for number in range(wanted))


_THREADS = 16
_UNAUTHORIZED = 13
_NAMESPACE_NOT_FOUND = 26


def table_size(client: Client, name: TableName) -> TableSize:
    """After an unclean shutdown a server's counters may be off a little. `collStats` gathers much more, and takes ten times as long."""
    try:
        found = read_command(client, name.db, {"dataSize": str(name), "estimate": True})
    except OperationFailure:  # a time series by its own name, or a table that a router's shards share
        return _size_by_statistics(client, name)
    return TableSize(documents=int(found["numObjects"]), bytes=int(found["size"]))


def _size_by_statistics(client: Client, name: TableName) -> TableSize:
    try:
        stats = read_command(client, name.db, {"collStats": name.coll})
    except OperationFailure as error:
        if error.code == _NAMESPACE_NOT_FOUND:
            return TableSize()
        raise
    buckets = stats.get("timeseries", {}).get("bucketCount", 0)
    return TableSize(documents=int(stats.get("count", buckets)), bytes=int(stats.get("size", 0)))


def table_sizes(client: Client, names: Iterable[TableName]) -> Mapping[TableName, TableSize]:
    """Without the tables that the user may not ask about."""
    wanted = list(names)
    with translated("reading the sizes of the source's tables"), ThreadPoolExecutor(_THREADS, "sizes") as threads:
        found = zip(wanted, threads.map(partial(_size_if_allowed, client), wanted), strict=True)
        return {name: size for name, size in found if size is not None}


def _size_if_allowed(client: Client, name: TableName) -> TableSize | None:
    try:
        return table_size(client, name)
    except OperationFailure as error:
        if error.code != _UNAUTHORIZED:
            raise
        log.info("table_size_unknown", table=str(name))
        return None
