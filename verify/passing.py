"""`Passing`: waiting until replication has passed what was just seen at the source."""

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
    """For many threads. Without checkpoints nobody replicates."""

    source: Client
    checkpoints: Checkpoints | None
    patience: timedelta
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stuck: threading.Event = field(default_factory=threading.Event)

    def wait(self, tables: Collection[TableId] = ()) -> Passed:
        """The time is that of an answer given now, so it is at or after whatever was read before.

        The last write before a silence is not resolved by itself, and no checkpoint passes it: when replication does not come past it
        promptly, the source is made to write a note. All patience is lost but once: while replication stands still, each further difference
        costs no more than a moment.
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
