"""`feature_version`: the featureCompatibilityVersion of a cluster, by which its servers behave, and not by their own version. Pure."""

from __future__ import annotations

FEATURES = "featureCompatibilityVersion"
TELLS_ORPHANS = (6, 0)
"""From here on a shard does not log writes to documents that it does not own (`OrphanGuard`)."""


def feature_version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)
