"""`table_size`, `table_sizes`: how large tables are, by the source's own counters: nothing is counted or read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog
from pymongo.errors import OperationFailure

from changefeed.table import TableName, TableSize
from source.connection import Client, read_command
from source.errors import translated

_THREADS = 16
_UNAUTHORIZED = 13
_NAMESPACE_NOT_FOUND = 26

_log = structlog.get_logger(__name__)


def table_size(client: Client, name: TableName) -> TableSize:
    """After an unclean shutdown a server's counters may be off a little."""
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
        _log.info("table_size_unknown", table=str(name))
        return None
