"""`cluster_sizes`, `divide_cluster`: how large the tables of a cluster are, and into which chunks one is divided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bson.raw_bson import RawBSONDocument

from changefeed.table import TableName, TableSchema, TableSize
from source.errors import translated
from source.sharded.cluster_clients import ClusterClients
from source.tables.chunks import (
    CHUNK_BYTES,
    MOST_CHUNKS,
    Division,
    chunks_of,
    divided,
    in_id_order,
    in_natural_order,
    sampled,
)
from source.tables.table_size import table_sizes


def cluster_sizes(clients: ClusterClients, names: Iterable[TableName]) -> Mapping[TableName, TableSize]:
    """With the documents that a shard has and does not own: usually few."""
    wanted, sums = list(names), dict[TableName, TableSize]()
    for name, host in clients.read_shards().items():
        for table, size in table_sizes(clients.of(name, host), wanted).items():
            sums[table] = sums.get(table, TableSize()) + size
    return sums


def divide_cluster(
    clients: ClusterClients, schema: TableSchema, *, chunk_bytes: int = CHUNK_BYTES, most: int = MOST_CHUNKS
) -> Division:
    """By the `_id`s of a random sample of each shard."""
    hosts = clients.read_shards()
    sizes = {shard: table_sizes(clients.of(shard, host), [schema.name]) for shard, host in hosts.items()}
    size = sum((found[schema.name] for found in sizes.values() if schema.name in found), TableSize())
    wanted = chunks_of(schema, size, chunk_bytes=chunk_bytes, most=most)
    if wanted <= 1:
        return Division(whole=in_natural_order(schema), size=size)
    found: list[RawBSONDocument] = []
    for shard in hosts:
        here = sizes[shard].get(schema.name, TableSize()).documents
        share = -(-wanted * here // max(1, size.documents))
        with translated(f"dividing {schema.name} into chunks"):
            found += sampled(clients.of(shard), schema.name, here, share)
    return divided(schema, size, sorted(found, key=lambda each: in_id_order(each["_id"])), wanted)
