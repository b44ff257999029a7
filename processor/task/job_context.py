"""`JobContext`: the inputs that the jobs of one changefeed share. Pure.

They are broadcast, in two parts: a base with nearly all tables, which seldom changes, and the rest, which changes with each DDL. A worker
identifies both by their keys and loads only what it does not have:

    context    base              the rest                              a worker loads
    f/1        f/base/1, 7 MB    -                                     both
    f/2        f/base/1          orders has an index since 8.4         the rest
    f/3        f/base/1          the same, and shop.new was created    the rest
    f/4        f/base/2, 7 MB    -                                     both

A context contains nothing open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.records.requests import ChangefeedId
from coordination.task_fence import Fence
from credentials.secret_files import SecretFiles
from processor.task.table_set import TableSet
from schema_store.packed_texts import NO_TEXTS, PackedTexts
from schema_store.schema_base import NO_BASE, SchemaBase
from schema_store.versions import SchemaVersions


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBase:
    """What many contexts of one changefeed have in common."""

    key: str
    schemas: SchemaBase
    tables: PackedTexts


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """Shared by the jobs of one changefeed on one node, until a DDL, an assignment or a user changes it.

    `tables` are those of the default lane.
    """

    key: str
    base_key: str
    changefeed: ChangefeedId
    life: str = ""
    """Differs for each changefeed that was ever created, even under one id."""
    configuration: Configuration
    """Without credentials: Spark keeps a context on its disks. A task reads the connection strings from etcd (`info_key`)."""
    info_key: str
    secret_files: SecretFiles
    """What `${file:...}` in them may name where a task runs."""
    capture: Capture
    schemas: SchemaVersions
    tables: TableSet
    fence: Fence

    @property
    def base(self) -> ContextBase:
        return ContextBase(key=self.base_key, schemas=self.schemas.base, tables=self.tables.base)

    def without_base(self) -> JobContext:
        return replace(self, schemas=self.schemas.over(NO_BASE), tables=self.tables.over(NO_TEXTS))

    def over(self, base: ContextBase) -> JobContext:
        return replace(self, schemas=self.schemas.over(base.schemas), tables=self.tables.over(base.tables))
