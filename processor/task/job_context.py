"""`JobContext`: what the jobs of one changefeed share: megabytes for 10,000 tables, so it is broadcast once.

A worker knows it by its `key`; nothing is open in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.records import ChangefeedId
from changefeed.table import TableId
from coordination.etcd.config import EtcdConfig
from schema_store.versions import SchemaVersions


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """What has to be true in etcd for a task to write: the node lives, and the changefeed is still in this run."""

    etcd: EtcdConfig
    node_key: str
    epoch: int
    status_key: str
    run: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """What the jobs of one changefeed on one node share until a DDL, an assignment or a user changes it.

    `tables` are those of the default lane.
    """

    key: str
    changefeed: ChangefeedId
    configuration: Configuration
    capture: Capture
    schemas: SchemaVersions
    tables: frozenset[TableId]
    fence: Fence
