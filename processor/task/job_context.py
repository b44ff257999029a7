"""`JobContext`: the inputs that the jobs of one changefeed share. They are megabytes for 10,000 tables, so they are broadcast once. Pure.

A worker identifies a context by its `key`. A context contains nothing open.
"""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.records import ChangefeedId
from changefeed.table import TableId
from coordination.etcd.config import EtcdConfig
from credentials.secret_files import SecretFiles
from schema_store.versions import SchemaVersions


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The conditions in etcd under which a task may write: the node lives, and the changefeed is still in this run."""

    etcd: EtcdConfig
    """Names files, and contains no password."""
    node_key: str
    epoch: int
    status_key: str
    run: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """Shared by the jobs of one changefeed on one node, until a DDL, an assignment or a user changes it.

    `tables` are those of the default lane.
    """

    key: str
    changefeed: ChangefeedId
    configuration: Configuration
    """Without credentials: Spark keeps a context on its disks. A task reads the connection strings from etcd (`info_key`)."""
    info_key: str
    secret_files: SecretFiles
    """What `${file:...}` in them may name where a task runs."""
    capture: Capture
    schemas: SchemaVersions
    tables: frozenset[TableId]
    fence: Fence
