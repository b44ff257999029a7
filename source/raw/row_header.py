"""`Header`: the fields of a raw event that routing and mounting need, in either capture. Pure."""

from __future__ import annotations

from typing import NamedTuple

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableId


class Header(NamedTuple):
    """A span `(x_at, x_end)` is the place of a document in the event; (0, 0) means none."""

    type: bytes
    time: int
    token: bytes
    ns: bytes
    """The raw `ns` document. Equal bytes mean the same table; see `table_name`."""
    key: bytes
    """The raw `documentKey`."""
    uuid: bytes
    full_at: int
    full_end: int
    update_at: int
    update_end: int
    before_at: int
    before_end: int
    split: tuple[int, int] | None
    """(fragment, of) for a fragment of an event that was too large."""

    @property
    def position(self) -> Position:
        return Position(ClusterTime.from_int(self.time), self.token.decode())

    @property
    def table(self) -> TableId | None:
        return TableId(self.uuid.hex()) if self.uuid else None
