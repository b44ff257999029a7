"""`ComparedSource`: what a verification asks of a source, whatever kind of deployment it is.

ComparedSource ─┬─ deployment.ComparedDeployment     a replica set or a router: one connection shows everything
└─ cluster.ComparedCluster           config servers and all shards
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from changefeed.cluster_time import ClusterTime
from changefeed.table import TableName, TableSchema
from source.columns import Columns
from source.tables.chunks import Division
from verify.documents.table_reader import TableReader


class ComparedSource(Protocol):
    """For several threads."""

    def read_tables(self, wanted: Callable[[TableName], bool]) -> tuple[TableSchema, ...]: ...

    def divide(self, schema: TableSchema, *, chunk_bytes: int, most: int) -> Division: ...

    def reader(self, schema: TableSchema, stop: threading.Event, columns: Columns | None) -> TableReader: ...

    def newest_time(self) -> ClusterTime:
        """At or after everything that earlier calls have read."""
        ...

    def resolve(self, at_ts: ClusterTime) -> None:
        """Called when replication has not passed that time yet: a quiet source may show nothing later."""

    def close(self) -> None: ...
