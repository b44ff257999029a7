"""What a verification asks of a replication that runs at the same time: to be past a state, and to write differing rows again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from changefeed.cluster_time import ClusterTime
from changefeed.table import TableId, TableSchema
from source.compared import ComparedSource
from verify.at_point import AtPoint
from verify.comparison import Passed
from verify.definitions import Pair


class Checkpoints(Protocol):
    """The progress of the replication."""

    def wait_past(self, passed_ts: ClusterTime, tables: Collection[TableId], patience: timedelta) -> Passed:
        """Waits until the checkpoints of these tables are after that time, so that its changes are downstream.

        Without tables it waits for the changefeed's checkpoint. Several threads call it.
        """
        ...


_PROMPT = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Passing:
    """Waits until replication has passed the state that was just read at the source. Many threads share it. `checkpoints` is None when replication does not run."""

    source: ComparedSource
    checkpoints: Checkpoints | None
    patience: timedelta
    _stuck: threading.Event = field(default_factory=threading.Event)

    def wait(self, tables: Collection[TableId] = ()) -> Passed:
        """Waits for the source's present time, which is at or after all that was read before.

        On a quiet source the last write may not become resolved, so no checkpoint passes it: if replication does not pass it promptly,
        the source is asked to resolve it. Only one call waits for the whole patience: while replication makes no progress, each further call
        waits for a moment only.
        """
        if self.checkpoints is None:
            return Passed.STANDING
        time = self.source.newest_time()
        passed = self.checkpoints.wait_past(time, tables, _PROMPT)
        if passed is Passed.OVERDUE:
            self.source.resolve(time)
            passed = self.checkpoints.wait_past(time, tables, _PROMPT if self._stuck.is_set() else self.patience)
        if passed is Passed.OVERDUE:
            self._stuck.set()
        else:
            self._stuck.clear()
        return passed


ROWS_AT_ONCE = 500
"""A window repairs so many rows of a table at most, so that it stays short."""


class Repairs(Protocol):
    """The node that replicates a table writes its rows again. A verification itself writes no row."""

    def repair(self, tables: Collection[TableId], keys: Sequence[bytes], go_on: Callable[[], object]) -> str:
        """Has the rows of these keys written as the source has them. Returns why not, or an empty text.

        `go_on` waits until replication has passed the present. Several threads call it.
        """
        ...


def repair_obstacle(pair: Pair) -> str:
    """Why rows of such a table are not repaired one by one."""
    if any(schema.options.decode().get("capped") for schema in pair.sources):
        return "the collection is capped: a row cannot be put in its place among the others"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """What runs beside a verification."""

    checkpoints: Checkpoints | None = None
    """None when replication does not run; a difference then needs no wait."""
    repairs: Repairs | None = None
    """None: what differs is only reported."""
    known: Callable[[], Iterable[TableSchema]] = tuple
    """The tables that the changefeed replicates now, with the ids by which it knows them."""
    at: AtPoint | None = None
    """Both sides are compared there, and not as they are now: the first difference is final."""
