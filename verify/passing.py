"""`Passing`: waits until replication has passed the state that was just read at the source."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta

from changefeed.table import TableId
from sink.mongodb.connection import Client
from source.oplog.window import newest_time
from source.stream.note import NoteKeeper
from verify.checkpoints import Checkpoints
from verify.documents.settling import Passed

_PROMPT = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Passing:
    """Many threads share it. `checkpoints` is None when replication does not run."""

    source: Client
    checkpoints: Checkpoints | None
    patience: timedelta
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stuck: threading.Event = field(default_factory=threading.Event)

    def wait(self, tables: Collection[TableId] = ()) -> Passed:
        """Waits for the source's present time, which is at or after all that was read before.

        On a quiet source the last write does not become resolved, so no checkpoint passes it: if replication does not pass it promptly,
        a note is written at the source. Only one call waits for the whole patience: while replication makes no progress, each further call
        waits for a moment only.
        """
        if self.checkpoints is None:
            return Passed.STANDING
        time = newest_time(self.source)
        passed = self.checkpoints.wait_past(time, tables, _PROMPT)
        if passed is Passed.OVERDUE:
            with self._lock:
                NoteKeeper(self.source).write(time)
            passed = self.checkpoints.wait_past(time, tables, _PROMPT if self._stuck.is_set() else self.patience)
        if passed is Passed.OVERDUE:
            self._stuck.set()
        else:
            self._stuck.clear()
        return passed
