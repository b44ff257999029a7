"""`User`: stops tables for a while, and resumes the tables that wait for a user: those that are stopped, and those of refused DDLs.

At the end it resumes nothing before everything else has arrived, if it is patient: what waits for a user holds nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from changefeed.errors import HistoryLost
from changefeed.records import DdlRecord, Straggler, TableRequest, TableVerb
from changefeed.table import TableId
from coordination.layout import child, decode, encode
from tests.simulation.cluster import FEED, LAYOUT, Cluster

_LOOKS_EVERY = 1.0


class User:
    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._eager = random.choice((0.0, 0.2, 0.7))
        self._patient_until: Callable[[], bool] | None = None
        self._look()

    def stop_one(self) -> None:
        tables = sorted(self._cluster.source.by_id)
        if tables and self._cluster.etcd.get(LAYOUT.status(FEED)):
            self._ask(self._random.choice(tables), TableVerb.STOP)

    def be_patient_until(self, arrived: Callable[[], bool]) -> None:
        """From now on it resumes everything, but only when the rest has arrived."""
        self._patient_until = arrived
        self._eager = 1.0

    def _look(self) -> None:
        self._cluster.machine.after(_LOOKS_EVERY, self._look)
        if self._patient_until is not None and not self._patient_until():
            return
        for table in self._waiting():
            if self._random.random() < self._eager:
                self._ask(table, TableVerb.RESUME)

    def _waiting(self) -> list[TableId]:
        etcd = self._cluster.etcd
        stragglers = {
            TableId(child(kv.key, LAYOUT.stragglers(FEED))): decode(Straggler, kv)
            for kv in etcd.range(LAYOUT.stragglers(FEED)).items
        }
        tables = {table for table, straggler in stragglers.items() if straggler.stopped and not _lost(straggler)}
        for kv in etcd.range(LAYOUT.ddls(FEED)).items:
            record = decode(DdlRecord, kv)
            if record.open and record.refused is not None:
                own = {record.event.id} if record.event.id is not None else set()
                tables |= record.scope.tables | record.scope.apart | own
        return sorted(tables)

    def _ask(self, table: TableId, verb: TableVerb) -> None:
        self._cluster.machine.count(f"user: asks to {verb} a table")
        self._cluster.machine.note("user", f"asks to {verb} {table}")
        self._cluster.put(LAYOUT.request(FEED, table), encode(TableRequest(verb=verb)))


def _lost(straggler: Straggler) -> bool:
    return straggler.error is not None and straggler.error.code == HistoryLost.code
