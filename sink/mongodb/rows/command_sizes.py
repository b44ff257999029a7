"""`CommandSizes`: how many changes a command has, by table and kind of command. Pure.

The server inserts the documents of one command in groups of up to 500, each as one storage transaction. Until the group is committed, no
majority can confirm any later write, of whatever table (the oplog has a hole). A table whose inserts are slow, because of its indexes or
the size of its documents, would so hold up all others. So its commands are short: beside inserts that take 1.4 ms each, an acknowledgement
by the majority took 21 ms with 14 documents in a command, and 1.1 ms with one. A worked example:

    first command of a table      100 documents in 142 ms      2 take 4 ms at most
    next                          2 in 4.8 ms                  2
    of another table              100 in 2 ms                  400, and from then on as many as are to be written

A command for several tables, which 8.0 has, hides which of them is slow. When one takes long, each of its tables gets commands of its own, until one of
these is short.

Each update and each delete is a storage transaction of its own, so they may be many. Only the commands of a table that shares the sink with others
are short, whatever they do: beside ten updates of 6 ms each, all small writes were late.
"""

from __future__ import annotations

from collections.abc import Iterable

from changefeed.table import TableId

FIRST = 100
_UNLIMITED = 500
_SLOW_SECONDS = 0.0001
"""A table is slow if each change takes longer than this."""
_SECONDS = 0.004
_OVERHEAD_SECONDS = 0.002
"""What a command takes besides its changes. A command of a few changes that takes no longer says nothing about the table."""
_GROWTH = 4
_LONG_SECONDS = 0.1
"""One of its tables is slow, or all of the target for a moment."""


class CommandSizes:
    """Remembers tables across runs. What it does not know costs a longer command, nothing else."""

    def __init__(self) -> None:
        self._most: dict[tuple[TableId, int], int] = {}
        """Absent: not known yet. `_UNLIMITED` or more: no limit."""
        self._suspected: frozenset[TableId] = frozenset()
        """They may have made a command of several tables long."""

    def may_share(self, table: TableId) -> bool:
        """Whether a command may contain changes of other tables besides."""
        return table not in self._suspected

    def took_together(self, tables: Iterable[TableId], seconds: float) -> None:
        if seconds > _LONG_SECONDS:
            self._suspected |= frozenset(tables)

    def most(self, table: TableId, kind: int) -> int | None:
        """None: no limit."""
        most = self._most.get((table, kind), FIRST)
        return most if most < _UNLIMITED else None

    def took(self, table: TableId, kind: int, changes: int, seconds: float) -> None:
        if seconds <= _LONG_SECONDS:
            self._suspected -= {table}
        each = (seconds - _OVERHEAD_SECONDS) / changes
        fits = int(_SECONDS / each) if each > _SLOW_SECONDS else _UNLIMITED
        known = self._most.get((table, kind), FIRST)
        self._most[table, kind] = max(1, fits if fits < known else min(fits, max(known, _GROWTH * changes)))
