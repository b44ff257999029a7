"""`SourceHistory`: where the rows of a source stand. Owner and nodes carry it, only the source looks inside. Pure.

DdlWatch ── DdlBatch.history ── Barrier.history ── etcd ── JobSpec.history ── RowCapture.reader(history)
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from changefeed.cluster_time import ClusterTime


class SourceHistory(Protocol):
    """For windows up to where the watch was that showed it."""

    @property
    def whole_from(self) -> ClusterTime:
        """Before it, changes of parts of the source that were removed may be missing."""
        ...

    def after(self, before: SourceHistory | None) -> SourceHistory:
        """Add `before`: what an earlier watch of the source showed, whose windows may not have been read yet."""
        ...

    def without(self, gone: Collection[str]) -> SourceHistory:
        """Leave out these parts of the source (`source.loss.Loss.gone`): nobody reads them any more."""
        ...
