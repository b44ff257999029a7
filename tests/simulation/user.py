"""`User`: stops tables for a while, has tables copied anew, and resumes the tables that wait for a user: those that are stopped, and those of refused DDLs.

At the end it resumes nothing before everything else has arrived, if it is patient: what waits for a user holds nothing else.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Any

import bson

from changefeed.errors import HistoryLost
from changefeed.records.ddl import DdlRecord
from changefeed.records.requests import RepairRequest, SkipRequest, TableRequest, TableVerb
from changefeed.records.status import Straggler
from changefeed.table import TableId
from coordination.layout import child, decode, encode
from owner.ddl.stragglers import SKIPPABLE, known_tables
from tests.simulation.cluster import FEED, LAYOUT, Cluster
from tests.simulation.source.sharded.cluster import ClusterSource

_LOOKS_EVERY = 1.0
_ACTS_ON_OUTGROWN = 0.15
"""How often it has a table copied anew that too many DDLs wait for. Meanwhile there are more."""
_RESUMES_IN_VAIN = 10
"""A table that waits again after so many resumes is copied anew. A unique index is refused again and again if a repaired row is newer than it."""


class User:
    def __init__(
        self,
        cluster: Cluster,
        random: Random,
        *,
        copies_anew: float | None = None,
        patient_until: Callable[[], bool] | None = None,
    ) -> None:
        """`copies_anew`: how often; otherwise the seed decides. `patient_until`: from the beginning."""
        self._cluster = cluster
        self._random = random
        self._eager = random.choice((0.0, 0.2, 0.7))
        self._recopies = Random(f"recopies {cluster.machine.seed}")
        """Apart from the other choices, so that seeds without it stay what they are."""
        self._copies_anew = self._recopies.choice((0.0, 0.0, 0.1, 0.4)) if copies_anew is None else copies_anew
        self._skips = Random(f"skips of {cluster.machine.seed}")
        self._skipping = self._skips.choice((0.0, 0.3, 0.8))
        self._stops = Random(f"stops {cluster.machine.seed}")
        self._stopping = self._stops.choice((0.0, 0.0, 0.15))
        self._letters = Random(f"retries of letters {cluster.machine.seed}")
        self._resumes: Counter[TableId] = Counter()
        self._patient_until: Callable[[], bool] | None = None
        if patient_until is not None:
            self.be_patient_until(patient_until)
        self.repairs = Random(f"repairs of {cluster.machine.seed}").random() < 0.5
        """Whether it has damaged rows repaired, as `sluice verify --repair` does: until they are equal."""
        self._look()

    def stop_one(self) -> None:
        self._ask_of_one(TableVerb.STOP, self._random)

    def _ask_of_one(self, verb: TableVerb, random: Random) -> None:
        source = self._cluster.source
        living = {table.id for table in source.tables.values()}
        tables = sorted(source.by_id if verb is TableVerb.STOP else living)
        if tables and self._cluster.etcd.get(LAYOUT.status(FEED)):
            self._ask(self._cluster.judge.known_as(random.choice(tables)), verb)

    def be_patient_until(self, arrived: Callable[[], bool]) -> None:
        """From now on it resumes everything, but only when the rest has arrived."""
        self._patient_until = arrived
        self._eager = 1.0

    @property
    def content(self) -> bool:
        """Nothing is left to be repaired, and no row is refused."""
        return not (self.repairs and self._cluster.judge.damaged) and not self._cluster.judge.lettered

    def _ask_for_retries(self) -> None:
        """Of rows that the target has refused."""
        for table, key in sorted(self._cluster.judge.lettered, key=str):
            if self._letters.random() < self._eager:
                self._cluster.machine.count("user: asks for a refused row to be tried again")
                self._cluster.machine.note("user", f"asks for {key} of {table} to be tried again")
                self._cluster.target.letters.ask(FEED, table, key)

    def _ask_for_repairs(self) -> None:
        etcd, machine = self._cluster.etcd, self._cluster.machine
        rows: dict[TableId, list[Any]] = {}
        for table, key in self._cluster.judge.damaged if self.repairs and etcd.get(LAYOUT.status(FEED)) else ():
            rows.setdefault(self._cluster.judge.known_as(table), []).append(key)
        for table, keys in rows.items():
            if etcd.get(LAYOUT.repair(FEED, table)) is None:
                machine.count("user: asks for rows to be repaired")
                machine.note("user", f"asks for {keys} of {table} to be repaired")
                encoded = tuple(b64encode(bson.encode({"_id": key})).decode() for key in keys)
                asked_at = datetime(2026, 11, 21, tzinfo=UTC)
                request = RepairRequest(id=f"at {machine.now}", keys=encoded, asked_at=asked_at)
                self._cluster.put(LAYOUT.repair(FEED, table), encode(request))

    def _look(self) -> None:
        self._cluster.machine.after(_LOOKS_EVERY, self._look)
        self._ask_for_repairs()
        self._ask_for_retries()
        if self._patient_until is not None and not self._patient_until():
            return
        if self._patient_until is None:
            self._ask_now_and_then()
        self._see_to_lost_tables()
        for record in self._refused():
            if record.event.type in SKIPPABLE and not record.taken and self._skips.random() < self._skipping:
                self._skip(record)
        for table in self._waiting():
            if self._random.random() < self._eager:
                anew = self._patient_until is None and self._recopies.random() < self._copies_anew
                anew = anew or self._resumes[table] >= _RESUMES_IN_VAIN
                self._resumes[table] = 0 if anew else self._resumes[table] + 1
                self._ask(table, TableVerb.RECOPY if anew else TableVerb.RESUME)

    def _ask_now_and_then(self) -> None:
        if self._recopies.random() < self._copies_anew:
            self._ask_of_one(TableVerb.RECOPY, self._recopies)
        if self._stops.random() < self._stopping:
            self._ask_of_one(TableVerb.STOP, self._stops)

    def _see_to_lost_tables(self) -> None:
        source = self._cluster.source
        retired = isinstance(source, ClusterSource) and source.retired
        for table in self._lost():
            if self._cluster.judge.is_lost(table):
                acts = bool(self._copies_anew or retired)
            else:
                self._cluster.machine.count("user: sees a table that too many DDLs wait for")
                acts = self._patient_until is not None or self._skips.random() < _ACTS_ON_OUTGROWN
            if acts:
                self._ask(table, TableVerb.RECOPY)

    def _stragglers(self) -> dict[TableId, Straggler]:
        return {
            TableId(child(kv.key, LAYOUT.stragglers(FEED))): decode(Straggler, kv)
            for kv in self._cluster.etcd.range(LAYOUT.stragglers(FEED)).items
        }

    def _lost(self) -> list[TableId]:
        """Not those that are about to end, but for a DDL that the target has refused: there is nothing to copy any more."""
        refused = {table for record in self._refused() for table in known_tables(record)}
        ending = {table for record in self._open() for table in record.scope.ended}
        lost = {table for table, straggler in self._stragglers().items() if _lost(straggler)}
        return sorted(lost - (refused & ending))

    def _waiting(self) -> list[TableId]:
        """A lost table is none of them, though a refused DDL may name it: to resume it would only take back that it is to be copied anew."""
        stragglers = self._stragglers()
        tables = {table for table, straggler in stragglers.items() if straggler.stopped}
        for record in self._refused():
            tables |= known_tables(record)
        return sorted(tables.difference(self._lost()))

    def _refused(self) -> list[DdlRecord]:
        return [record for record in self._open() if record.refused is not None]

    def _open(self) -> list[DdlRecord]:
        records = [self._cluster.decoder(DdlRecord, kv) for kv in self._cluster.etcd.range(LAYOUT.ddls(FEED)).items]
        return [record for record in records if record.open]

    def _skip(self, record: DdlRecord) -> None:
        self._cluster.machine.count("user: asks to skip a DDL")
        self._cluster.machine.note("user", f"asks to skip {record.event}")
        self._cluster.judge.lets_differ(record)
        self._cluster.put(LAYOUT.skip(FEED, record.position), encode(SkipRequest(position=record.position)))

    def _ask(self, table: TableId, verb: TableVerb) -> None:
        self._cluster.machine.count(f"user: asks to {verb} a table")
        self._cluster.machine.note("user", f"asks to {verb} {table}")
        self._cluster.put(LAYOUT.request(FEED, table), encode(TableRequest(verb=verb)))


def _lost(straggler: Straggler) -> bool:
    return straggler.error is not None and straggler.error.code == HistoryLost.code
