"""`open_compared_source`: a source by its connection string and the capture of its changefeed."""

from __future__ import annotations

from changefeed.capture import Capture
from source.connection import connect
from source.sharded.cluster_clients import ClusterClients
from verify.sources.cluster import ComparedCluster
from verify.sources.compared_source import ComparedSource
from verify.sources.deployment import ComparedDeployment


def open_compared_source(uri: str, capture: Capture | None) -> ComparedSource:
    """Reads primaries: what they have not shown yet would look like a difference."""
    if capture is Capture.SHARD_OPLOGS:
        return ComparedCluster(ClusterClients(uri, capture=None))
    return ComparedDeployment(connect(uri, capture=None), buckets=capture is Capture.OPLOG)
