"""`Repairs`: has rows that differ written again, by the node that replicates their table. A verification itself writes no row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from changefeed.table import TableId
from verify.definitions.pairing import Pair

ROWS_AT_ONCE = 500
"""A window repairs so many rows of a table at most, so that it stays short."""


class Repairs(Protocol):
    def repair(self, tables: Collection[TableId], keys: Sequence[bytes], go_on: Callable[[], object]) -> str:
        """Has the rows of these keys written as the source has them. Returns why not, or an empty text.

        `go_on` waits until replication has passed the present. Several threads call it.
        """
        ...


def obstacle(pair: Pair) -> str:
    """Why rows of such a table are not repaired one by one."""
    if any(schema.options.decode().get("capped") for schema in pair.sources):
        return "the collection is capped: a row cannot be put in its place among the others"
    return ""
