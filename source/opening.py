"""`open_source`, `open_compared`: a source by its connection string and its capture. Only this module knows which kinds of sources there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from changefeed.capture import Capture
from source.compared import ComparedDeployment, ComparedSource
from source.connection import connect
from source.loss import InBackground, Losses
from source.one_deployment import OneDeployment
from source.sharded.cluster_clients import ClusterClients
from source.sharded.gone_shards import GoneShards
from source.sharded.source import ComparedCluster, ShardedSource
from source.source import Source


def open_source(uri: str, capture: Capture) -> Source:
    if capture is Capture.SHARD_OPLOGS:
        return ShardedSource(ClusterClients(uri))
    return OneDeployment(connect(uri, capture=capture), capture)


def open_compared(uri: str, capture: Capture | None) -> ComparedSource:
    """Reads primaries: what they have not shown yet would look like a difference."""
    if capture is Capture.SHARD_OPLOGS:
        return ComparedCluster(ClusterClients(uri, capture=None))
    return ComparedDeployment(connect(uri, capture=None), buckets=capture is Capture.OPLOG)


def open_losses(capture: Capture, background: InBackground, source: Callable[[], Source]) -> Losses | None:
    """`source`: what `open_source` gave for the same capture. None: the history is in one place, and there or not for all tables."""
    sharded = capture is Capture.SHARD_OPLOGS
    return GoneShards(background, lambda: cast("ShardedSource", source())) if sharded else None
