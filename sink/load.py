"""`DocumentLoader`: the protocol by which a table's initial copy writes documents into a sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from changefeed.cluster_time import ClusterTime
from changefeed.documents.row_key import KeyRange
from sink.receipt import Receipt


class DocumentLoader(Protocol):
    """Loads one table; runs in a Spark task and raises the same errors as a `RowWriter`.

    A chunk is cleared before it is loaded: an earlier attempt may have left documents in it that the source has deleted since, and
    those deletes are not replicated again.
    """

    def empty(self) -> bool:
        """Whether the table has no documents, or does not exist."""
        ...

    def clear(self, range: KeyRange) -> int:
        """Removes every document of the range and returns their number."""
        ...

    def load(self, documents: Sequence[bytes], read_ts: ClusterTime) -> None:
        """All documents are durable when it returns, unless `finish` has receipts. `read_ts`: no document is older; messages and dead letters show it."""
        ...

    def finish(self) -> tuple[Receipt, ...]:
        """What has to be committed for the loaded documents to be seen, and is durable now."""
        ...
