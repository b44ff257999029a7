"""`Accident`: DDLs of several kinds are brought to their moments, a node is killed, and each DDL must take effect exactly once.

    tables at home, rows ──▶ DDLs at their moments ──▶ kill -9 ──▶ rows, until the others have taken over ──▶ both sides are equal

One accident serves several cases of the matrix: DDLs of different databases do not wait for each other, so each is at its own moment
when the victim dies. Nothing depends on durations: failpoints hold the processes, and the moment is checked in etcd
and at the target before the kill.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from changefeed.records.ddl import DdlRecord, DdlState
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableId
from tests.e2e.failover.ddl_kinds import KINDS, Database, Kind, commands_had
from tests.e2e.failover.holds import Point
from tests.e2e.failover.standing_cluster import PROCESSORS, StandingCluster
from tests.independent_compare import differences

_ROWS = 20


class Moment(StrEnum):
    CLOSED = "barrier closed and not yet reached"
    REACHED = "checkpoint reached"
    EXECUTING = "executing recorded"
    APPLIED = "applied downstream but not recorded"
    RELEASED = "released but not yet obeyed"


class Victim(StrEnum):
    OWNER = "owner"
    HOME = "processor of the table"
    OTHER = "another processor"
    OWNER_AND_HOME = "owner and processor"

    @property
    def owner(self) -> bool:
        return self in (Victim.OWNER, Victim.OWNER_AND_HOME)


_STANDS_AT: Mapping[Moment, Point] = {
    Moment.REACHED: Point.DUE,
    Moment.EXECUTING: Point.EXECUTING,
    Moment.APPLIED: Point.APPLIED,
    Moment.RELEASED: Point.APPLIED,  # the owner waits here until the processors are held
}


@dataclass(frozen=True)
class Case:
    """`database` holds the tables of the DDL, all on one node; `beside` is a table on the other node."""

    name: str
    moment: Moment
    database: str

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]

    @property
    def beside(self) -> str:
        return f"{self.database}_beside"

    @property
    def point(self) -> Point | None:
        """Where the owner is held. At a closed barrier the processors alone are held, but a create closes no barrier."""
        if self.moment is Moment.CLOSED:
            return None if self.kind.before else Point.DUE
        return _STANDS_AT[self.moment]


class Accident:
    """One accident, with a changefeed of its own that ends with it."""

    def __init__(self, cluster: StandingCluster, victim: Victim, moments: Mapping[str, Moment], *, home: str) -> None:
        prefix = f"f{uuid.uuid4().hex[:8]}"
        self._cluster = cluster
        self._victim = victim
        self._feed = ChangefeedId(prefix)
        self._home = home
        self._other = next(name for name in PROCESSORS if name != home)
        self._count = itertools.count()
        self.cases = [Case(name, moment, f"{prefix}_{index}") for index, (name, moment) in enumerate(moments.items())]

    def begin(self) -> None:
        cluster = self._cluster
        flags = ("--source", cluster.source_uri, "--sink", cluster.target_uri, "--start", "now")
        cluster.sluice("changefeed", "create", "--id", self._feed, *flags, "--tables", f"{self._feed}_*.*")

    def happen(self) -> None:
        """Returns when the cluster has recovered, or raises."""
        self._prepare()
        self._bring_to_their_moments()
        self._cluster.kill(self._victims())
        self._write(self.cases, done=True)
        self._cluster.until(self._all_settled, "the DDLs")
        self._write(self.cases, done=True)
        self._cluster.until(lambda: not self._differing(), "equality")

    def end(self) -> None:
        self._cluster.sluice("changefeed", "remove", self._feed, "--yes")

    def faults_of(self, case: Case) -> list[str]:
        """What is wrong after the accident, in words."""
        cluster = self._cluster
        found = self._differences(case)
        had, wanted = commands_had(cluster.target, case.database), dict(case.kind.commands)
        repeated = self._victim.owner and case.moment is Moment.APPLIED and case.kind.harmless_twice
        if repeated and had.get(repeated) == 2:
            wanted[repeated] = 2
        if had != wanted:
            found.append(f"the target has had {had}, not {wanted}")
        if cluster.error(self._feed):
            found.append(f"the changefeed says {cluster.error(self._feed)}")
        return found

    def _prepare(self) -> None:
        """Creates all tables, moves each to its node, and waits until rows arrive."""
        cluster, source = self._cluster, self._cluster.source
        for case in self.cases:
            for table in case.kind.before:
                source[case.database].create_collection(table)
            source[case.beside].create_collection("t")
        made = sum(len(case.kind.before) + 1 for case in self.cases)
        cluster.until(lambda: len(cluster.assigned(self._feed)) == made, "the tables")
        cluster.send_home(self._feed, dict(self._belonging()))
        self._write(self.cases, done=False)
        cluster.until(lambda: not self._differing(), "the first rows")

    def _belonging(self) -> Iterator[tuple[TableId, str]]:
        at_home = {case.database for case in self.cases}
        home, other = self._home, self._other
        if self._victim is Victim.OTHER:
            home, other = other, home
        for record in self._cluster.ddls(self._feed):
            if record.event.id is not None:
                yield record.event.id, home if record.event.db in at_home else other

    def _victims(self) -> list[str]:
        owner = [self._cluster.owner() or ""] if self._victim.owner else []
        return owner + ([] if self._victim is Victim.OWNER else [self._home])

    def _bring_to_their_moments(self) -> None:
        """Brings the DDLs that need the processors to their moments first; then holds the processors, and releases the owner for the others."""
        cluster, holds = self._cluster, self._cluster.holds
        for case in self.cases:
            if case.point is not None:
                holds.put_on(case.point, case.database)
        last = [case for case in self.cases if case.moment is Moment.CLOSED]
        first = [case for case in self.cases if case not in last]
        released = [case for case in first if case.moment is Moment.RELEASED]
        self._write_and_do(first)
        cluster.until(lambda: all(map(self._reached, first)), "the owner at its failpoints")
        if last or released:
            holds.put_on(Point.WINDOW, self._feed)
        self._write_and_do(last)
        for case in released:
            holds.take_off(Point.APPLIED, case.database)
        for case in self.cases:
            cluster.until(lambda case=case: self._stands(case), f"{case.name}: {case.moment}")  # type: ignore[misc]  # the loop's

    def _write_and_do(self, cases: Iterable[Case]) -> None:
        for case in cases:
            self._write([case], done=False)
            case.kind.ddl(self._cluster.source[case.database])
            self._write([case], done=True)

    def _reached(self, case: Case) -> bool:
        return case.point is None or self._cluster.holds.reached(case.point, case.database) == case.kind.stand

    def _stands(self, case: Case) -> bool:
        """Whether etcd and the target show the moment of the case."""
        records = self._records(case)
        if len(records) < case.kind.stand:
            return False
        states = {record.state for record in records}
        done = commands_had(self._cluster.target, case.database)
        match case.moment:
            case Moment.CLOSED:
                return states == {DdlState.PENDING} and self._reached(case) and all(map(self._closed, records))
            case Moment.REACHED:
                return states == {DdlState.PENDING} and all(map(self._at_its_tables, records))
            case Moment.EXECUTING:
                return states == {DdlState.EXECUTING} and done == self._before(case)
            case Moment.APPLIED:
                return states == {DdlState.EXECUTING} and done != self._before(case)
            case Moment.RELEASED:
                return states == {DdlState.DONE} and done != self._before(case)

    def _records(self, case: Case) -> list[DdlRecord]:
        """The records of the DDLs that are at the moment."""
        made = len(case.kind.before)
        return self._cluster.records_of(self._feed, case.database)[made : made + case.kind.stand]

    def _closed(self, record: DdlRecord) -> bool:
        """The barrier holds each of its tables at the DDL, and no table has reached it."""
        cluster = self._cluster
        checkpoints = {table: cluster.checkpoint(self._feed, table) for table in record.scope.tables}
        return all(
            cluster.held(self._feed).get(table) == record.position and at is not None and at < record.position
            for table, at in checkpoints.items()
        )

    def _at_its_tables(self, record: DdlRecord) -> bool:
        return all(self._cluster.checkpoint(self._feed, table) == record.position for table in record.scope.tables)

    @staticmethod
    def _before(case: Case) -> dict[str, int]:
        return {"create": len(case.kind.before)} if case.kind.before else {}

    def _all_settled(self) -> bool:
        for case in self.cases:
            records = self._cluster.records_of(self._feed, case.database)
            expected = len(case.kind.before) + case.kind.shown
            if len(records) < expected or any(record.open for record in records):
                return False
        return True

    def _differing(self) -> list[Case]:
        return [case for case in self.cases if self._differences(case)]

    def _differences(self, case: Case) -> list[str]:
        source, target = self._cluster.source, self._cluster.target
        return [
            difference
            for database in (case.database, case.beside)
            for difference in differences(source, database, target, database)
        ]

    def _write(self, cases: Iterable[Case], *, done: bool) -> None:
        """Writes to the tables that exist before the DDLs, or after them."""
        for case in cases:
            source = self._cluster.source
            for table in case.kind.after if done else case.kind.before:
                self._write_rows(source[case.database], table)
            self._write_rows(source[case.beside], "t")

    def _write_rows(self, database: Database, table: str) -> None:
        """Inserts and updates rows, then deletes the second half."""
        keys = [next(self._count) for _ in range(_ROWS)]
        database[table].insert_many([{"_id": key, "code": key, "total": 0} for key in keys])
        database[table].update_many({"_id": {"$in": keys[::3]}}, {"$inc": {"total": 1}})
        if not database[table].options().get("capped"):
            database[table].delete_many({"_id": {"$in": keys[_ROWS // 2 :]}})
