"""`Passing`: waits until replication has passed the state that was just read at the source."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta

from changefeed.table import TableId
from verify.checkpoints import Checkpoints
from verify.documents.settling import Passed
from verify.sources.compared_source import ComparedSource

_PROMPT = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Passing:
    """Many threads share it. `checkpoints` is None when replication does not run."""

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
