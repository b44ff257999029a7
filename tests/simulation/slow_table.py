"""`SlowTable`: for a while the target takes long for each row of one table, and nothing else goes wrong. Rows of other tables do not wait for it (I7).

In half of the seeds the oplog is cut behind the other tables meanwhile. If the slow one is still before the cut, it alone is lost.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

from changefeed.cluster_time import ClusterTime
from changefeed.table import TableName
from tests.simulation.clockwork.machine import Violation
from tests.simulation.cluster import Cluster
from tests.simulation.judgement.agreement import DATABASES, Agreement
from tests.simulation.source.replica_set import FIRST_SECOND
from tests.simulation.source.tables import NotPossible

_TABLES = tuple(TableName(database, coll) for database in DATABASES for coll in ("a", "b", "c"))
_KEYS, _VALUES = 19, 100
_SECONDS = (0.2, 0.5, 1.0)
"""That the target takes for a row of the slow table."""
_LASTS, _FOUND_WITHIN = 30.0, 12.0
_MOST_LAG = 4.0
"""Seconds from a row's commit until it is at the target, of other tables, once the slow one must have been found."""
_PACE = 0.25
_TO_THE_SLOW_ONE = (1, 4)
"""Rows at a time, where any other table gets one. The target cannot take so many, most often."""
_DDL = 0.02
_CUT_AFTER, _KEPT = 22.0, 6.0
"""Seconds: when the oplog is cut, and how much of it is left."""


class SlowTable:
    def __init__(self, cluster: Cluster, agreement: Agreement) -> None:
        self._cluster = cluster
        self._random = Random(f"slow table of {cluster.machine.seed}")
        self._slow = self._random.choice(_TABLES)
        self._slow_at_target = agreement.target(self._slow)
        self._rows = self._random.choice(_TO_THE_SLOW_ONE)
        self._begun_at = 0.0

    def create(self) -> None:
        with self._cluster.source.batch(shared_time=False):
            for name in _TABLES:
                self._cluster.source.create(name)

    def begin(self) -> float:
        """Returns when it ends."""
        machine, slow = self._cluster.machine, self._cluster.target.slow_rows_of
        self._begun_at = machine.now
        self._cluster.judge.seen = self._check
        slow[self._slow_at_target] = self._random.choice(_SECONDS)
        machine.after(_LASTS, slow.clear)
        if self._random.random() < 0.5:
            machine.after(_CUT_AFTER, self._cut)
        self._write()
        return self._begun_at + _LASTS

    def _cut(self) -> None:
        machine = self._cluster.machine
        machine.note("source", f"only {_KEPT} s of its oplog are left")
        kept = ClusterTime(FIRST_SECOND + int(machine.now - _KEPT), 0)
        self._cluster.source.one_oplog().forget_before(kept)

    def _write(self) -> None:
        machine = self._cluster.machine
        with self._cluster.source.batch(shared_time=False):
            for name in (*_TABLES, *[self._slow] * (self._rows - 1)):
                with suppress(NotPossible):
                    self._change(name)
        if machine.now < self._begun_at + _LASTS:
            machine.after(2 * self._random.random() * _PACE, self._write)

    def _change(self, name: TableName) -> None:
        source, key, value = self._cluster.source, self._random.randrange(_KEYS), self._random.randrange(_VALUES)
        if self._random.random() < _DDL:
            source.modify(name, self._random.choice(("off", "moderate", "strict")))
        if key in source.tables[name].rows:
            source.update(name, key, {"f": value}, [])
        else:
            source.insert(name, {"_id": key, "u": key, "f": value})

    def _check(self, name: TableName, ts: ClusterTime) -> None:
        committed_at = ts.seconds - FIRST_SECOND
        lag = self._cluster.machine.now - committed_at
        if committed_at > self._begun_at + _FOUND_WITHIN and lag > _MOST_LAG and name != self._slow_at_target:
            raise Violation(
                f"I7: a row of {name} arrives after {lag:.1f} s, beside {self._slow_at_target}, which is slow"
            )
