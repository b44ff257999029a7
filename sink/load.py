"""How the initial copy of a table brings its documents into a sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from changefeed.cluster_time import ClusterTime
from changefeed.documents.key_range import KeyRange


class DocumentLoader(Protocol):
    """Of one table; runs in a Spark task, as a `RowWriter` does, and raises the same errors.

    A chunk is cleared, then loaded. An earlier attempt may have left documents in it that are gone from the source by now, and
    whose deletes will not come again.
    """

    def empty(self) -> bool:
        """Whether the table has no documents, or does not exist."""
        ...

    def clear(self, range: KeyRange) -> int:
        """Removes every document of the range; how many there were."""
        ...

    def load(self, documents: Sequence[bytes], read_ts: ClusterTime) -> None:
        """All are durable when it returns. `read_ts`: no document is older, for messages and dead letters."""
        ...
