"""`RowRepairs`: the rows of a run that a verification found different, as the source has them at the run's end. Pure.

A worked example. Another client changed `x` and inserted `y` at the target, whose unique value `x` needs:

    5  update x: n = 2          written
       end of the run           x and y are read at the source, not before 5. The source has no y: it is removed first. Then x is written
    8  update x: u = 3          a replay, if x was read after 8
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from changefeed.cluster_time import ClusterTime
from changefeed.documents.row_key import row_key
from changefeed.event import RowType
from changefeed.table import TableId
from sink.row import AskedRows, FetchRow, RowChange

_HELD_BYTES = 16 << 20


class RowRepairs:
    def __init__(self, asked: Sequence[AskedRows], fetch: FetchRow | None) -> None:
        """Without `fetch` there are no repairs: nothing can be read from the source."""
        self._asked = {each.place.table.id: each for each in asked if fetch is not None}
        self._fetch = fetch
        self._newest: dict[TableId, RowChange] = {}
        """Of each table with such rows the newest change that the run has written: an older row would undo it."""
        self._alone = {(table, row_key(key)) for table, each in self._asked.items() for key in each.keys}
        """The asked rows that the run has not changed otherwise."""

    @property
    def tables(self) -> Iterable[TableId]:
        return self._asked.keys()

    def meet(self, changes: Iterable[RowChange]) -> None:
        for change in changes if self._asked else ():
            if change.table.id in self._asked:
                self._newest[change.table.id] = change
                self._alone.discard(change.row)

    def only_asked(self, change: RowChange) -> bool:
        """Whether nothing but the request changes the row in this run."""
        return bool(self._alone) and change.row in self._alone

    def rows_of_now(self) -> Iterator[tuple[RowChange, ClusterTime]]:
        """Whole documents and deletes, each with the time at which it was read. Removals come first: they free unique values."""
        for table, asked in self._asked.items():
            held: list[tuple[RowChange, ClusterTime]] = []
            size = 0
            newest = self._newest.get(table, asked.place.row(b""))
            for key in asked.keys:
                change = newest._replace(type=RowType.UPDATE, key=key, document=None, update=None)
                found = self._fetch(change) if self._fetch is not None else None
                if found is None:
                    break  # the source has dropped the table
                whole = change.as_now(found)
                if found.document is None and asked.removes:
                    yield whole, found.read_ts
                elif found.document is not None and not found.ignored:
                    held.append((whole, found.read_ts))
                    size += whole.size
                if size >= _HELD_BYTES:
                    yield from held
                    held, size = [], 0
            yield from held
