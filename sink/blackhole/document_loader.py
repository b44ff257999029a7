"""`BlackholeDocumentLoader`: accepts every document and stores none."""

from __future__ import annotations

from collections.abc import Sequence

from changefeed.cluster_time import ClusterTime
from changefeed.documents.row_key import KeyRange
from sink.receipt import Receipt


class BlackholeDocumentLoader:
    def empty(self) -> bool:
        return True

    def clear(self, range: KeyRange) -> int:  # noqa: ARG002 - a blackhole holds no documents
        return 0

    def finish(self) -> tuple[Receipt, ...]:
        return ()

    def load(self, documents: Sequence[bytes], read_ts: ClusterTime) -> None:
        """Discards the documents."""
