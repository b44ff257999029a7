"""`high_water_mark_token`: a token as servers write it."""

from __future__ import annotations

from changefeed.cluster_time import ClusterTime


def high_water_mark_token(cluster_ts: ClusterTime) -> str:
    """The high water mark that a server with version 1 tokens would give."""
    return f"82{cluster_ts.to_int():016X}2B0229296E04"
