"""`divide`: divides a table into chunks that are copied in parallel.

    capped, time-series, collation on `_id`    one, in natural order: the order matters, or only the server knows it
    up to the size of a chunk                  one
    sharded by {_id: 1}                        the bounds of its ranges in config.chunks, if there are enough
    a replica set whose primary is read        splitVector, which walks the index on `_id`
    if that is refused, takes too long,        the `_id`s of a random sample, sorted by the server; a smaller sample if that takes too long
      or finds too few

Bounds only have to be in ascending order. The ranges between them contain every document, also those with `_id`s of other types, since
ranges are read by `min` and `max` along the index, not by comparison. So a table may grow while it is divided, and a sample may be
uneven. A clustered collection has no index on `_id`, but the server accepts `hint: {_id: 1}` with `min` and `max` for it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.raw_bson import RawBSONDocument
from pymongo import ReadPreference
from pymongo.errors import OperationFailure

from changefeed.documents.bson_order import compare
from changefeed.documents.document import Document
from changefeed.table import TableKind, TableName, TableSchema
from source.connection import Client, is_router, read_command
from source.errors import translated

CHUNK_BYTES = 64 << 20
MOST_CHUNKS = 10_000
_LONGEST_BOUND = 1024
"""A longer `_id` is not used as a bound, since bounds are stored in etcd."""
_SAMPLES_PER_CHUNK = (16, 4, 1, 0.1)
"""Each sampled document may be one read of the disk."""
_SMALLEST_FRACTION = 20
"""A sample of more than a twentieth would make the server read the whole table."""
_SPLITTING_MS = 20_000
_TOOK_TOO_LONG = 50
_NAMESPACE_NOT_FOUND = 26

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)

T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """`bounds` ascend; `whole`: one chunk, in natural order."""

    bounds: tuple[Document, ...] = ()
    whole: bool = False


def divide(client: Client, schema: TableSchema, *, chunk_bytes: int = CHUNK_BYTES, most: int = MOST_CHUNKS) -> Division:
    if _in_natural_order(schema):
        return Division(whole=True)
    with translated(f"dividing {schema.name} into chunks"):
        documents, size = _extent(client, schema.name)
        wanted = min(most, -(-size // chunk_bytes))
        if wanted <= 1:
            return Division()
        found = _known_bounds(client, schema, chunk_bytes)
        if len(found) < wanted // 2:
            found = _sampled(client, schema.name, documents, wanted)
    bounds = tuple(_even(_ascending(found), min(wanted, most) - 1))
    log.info("table_divided", table=str(schema.name), documents=documents, bytes=size, chunks=len(bounds) + 1)
    return Division(bounds=bounds)


def _in_natural_order(schema: TableSchema) -> bool:
    options = schema.options.decode()
    collation = options.get("collation", {}).get("locale", "simple")
    return schema.kind is TableKind.TIMESERIES or bool(options.get("capped")) or collation != "simple"


def _extent(client: Client, name: TableName) -> tuple[int, int]:
    """Documents and bytes, from the server's counters."""
    try:
        stats = read_command(client, name.db, {"collStats": name.coll})
    except OperationFailure as error:
        if error.code == _NAMESPACE_NOT_FOUND:
            return 0, 0
        raise
    return int(stats.get("count", 0)), int(stats.get("size", 0))


def _known_bounds(client: Client, schema: TableSchema, chunk_bytes: int) -> list[RawBSONDocument]:
    if not is_router(client):
        return _split_by_server(client, schema.name, chunk_bytes)
    if schema.shard_key is not None and list(schema.shard_key.decode().items()) == [("_id", 1)]:
        return _shard_ranges(client, schema)
    return []


def _split_by_server(client: Client, name: TableName, chunk_bytes: int) -> list[RawBSONDocument]:
    """Empty if the server refuses: the user may lack the privilege, and hosted services and secondaries do not allow it."""
    if client.read_preference != ReadPreference.PRIMARY:
        return []
    command = {"splitVector": str(name), "keyPattern": {"_id": 1}, "maxChunkSizeBytes": chunk_bytes}
    try:
        reply = read_command(client, "admin", {**command, "maxTimeMS": _SPLITTING_MS}, codec_options=_RAW)
    except OperationFailure as error:
        log.info("table_not_split_by_the_source", table=str(name), code=error.code)
        return []
    return list(reply["splitKeys"])


def _shard_ranges(client: Client, schema: TableSchema) -> list[RawBSONDocument]:
    """Servers before 5.0 store them by the collection's name, later ones by its UUID."""
    config = client.get_database("config", codec_options=_RAW)
    entry = config["collections"].find_one({"_id": str(schema.name)}, {"uuid": 1}) or {}
    wanted: list[Mapping[str, Any]] = [{"ns": str(schema.name)}]
    if "uuid" in entry:
        wanted.append({"uuid": entry["uuid"]})
    ranges = config["chunks"].find({"$or": wanted}, {"min": 1}, sort=[("min", 1)])
    return [chunk["min"] for chunk in ranges][1:]


def _sampled(client: Client, name: TableName, documents: int, wanted: int) -> list[RawBSONDocument]:
    table = client[name.db].get_collection(name.coll).with_options(_RAW)
    for per_chunk in _SAMPLES_PER_CHUNK:
        size = min(int(wanted * per_chunk), documents // _SMALLEST_FRACTION)
        if size < 1:
            break
        stages: list[dict[str, Any]] = [{"$sample": {"size": size}}, {"$project": {"_id": 1}}, {"$sort": {"_id": 1}}]
        try:
            return list(table.aggregate(stages, maxTimeMS=_SPLITTING_MS))
        except OperationFailure as error:
            if error.code != _TOOK_TOO_LONG:
                raise
            log.info("sample_took_too_long", table=str(name), documents=size)
    return []


def _ascending(found: Iterable[RawBSONDocument]) -> Iterator[Document]:
    """Each one greater than the one before in `bson_order`, by which changes find their chunk.

    MinKey and MaxKey are left out: a server does not scan from a `min` that nothing can follow, or to a `max` that nothing can precede.
    """
    last: list[Any] = []
    for document in found:
        key = document["_id"]
        if len(document.raw) > _LONGEST_BOUND or isinstance(key, MinKey | MaxKey):
            continue
        if not last or compare(last[0], key) < 0:
            last = [key]
            yield Document(bytes(document.raw))


def _even(found: Iterable[T], wanted: int) -> Iterator[T]:
    """`wanted` of them, evenly spread; all if there are not more."""
    values = list(found)
    if len(values) <= wanted:
        return iter(values)
    return (values[(number + 1) * len(values) // (wanted + 1)] for number in range(wanted))
