"""`open_source`: a source by its connection string and its capture."""

from __future__ import annotations

from changefeed.capture import Capture
from source.connection import connect
from source.one_deployment import OneDeployment
from source.sharded.cluster_clients import ClusterClients
from source.sharded.source import ShardedSource
from source.source import Source


def open_source(uri: str, capture: Capture) -> Source:
    if capture is Capture.SHARD_OPLOGS:
        return ShardedSource(ClusterClients(uri))
    return OneDeployment(connect(uri, capture=capture), capture)
