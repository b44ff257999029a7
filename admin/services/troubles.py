"""`troubles`: which tables of a changefeed are not where the others are, and why. `standing`: what a table does now. Pure.

Of several troubles of a table the first one counts:

    refused      the target refused a DDL of it, which waits for a user, and a DDL that is to come ends it: nothing else matters any more
    lost         its history has left the source's oplog: it has to be copied again
    stopped      nothing of it is written until a user resumes it
    refused      the target refused a DDL of it, which waits for a user
    behind       it waits for another such table, is catching up, or is tried on another node

`not_ready`, `faults`: what is wrong with a node, as far as etcd says. What a node cannot reach is said by its reports about the changefeeds: each has a source and a target of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from changefeed.errors import (
    SinkMajorityStalled,
    SinkRefused,
    SinkUnavailable,
    SourceMajorityStalled,
    SourceRefused,
    SourceUnavailable,
)
from changefeed.lifecycle import ErrorReport, State
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.records.node import NodeHealth, NodeId, PositionReport
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableId, TableKind
from owner.ddl.stragglers import StoredStraggler, known_tables

_BEHIND_SECONDS = 30
"""How far a table may be behind its barrier, in cluster time, and still count as following."""
_OLD = timedelta(minutes=1)
"""The age of a barrier that does not move, with a lag as large. A quiet source moves it every ten seconds."""


class TroubleKind(StrEnum):
    LOST = "lost"
    STOPPED = "stopped"
    REFUSED = "refused"
    BEHIND = "behind"


@dataclass(frozen=True, slots=True)
class TableTrouble:
    """`error` is None if a user stopped the table, or if it is behind for the sake of another one."""

    kind: TroubleKind
    error: ErrorReport | None = None

    @property
    def waits_for_user(self) -> bool:
        return self.kind is not TroubleKind.BEHIND


def troubles(
    stragglers: Mapping[TableId, StoredStraggler], records: Iterable[DdlRecord]
) -> dict[TableId, TableTrouble]:
    found = {
        table: _trouble(stored) if stored.record.stopped else TableTrouble(TroubleKind.BEHIND, stored.record.error)
        for table, stored in stragglers.items()
    }
    open_records = sorted(
        (record for record in records if record.open), key=lambda record: record.position, reverse=True
    )
    ending = {table for record in open_records for table in record.scope.ended}
    for record in open_records:
        if record.refused is not None:
            for table in known_tables(record):
                known = found.get(table)
                if known is None or not known.waits_for_user or known.kind is TroubleKind.REFUSED or table in ending:
                    found[table] = TableTrouble(TroubleKind.REFUSED, record.refused)
    return found


@dataclass(frozen=True, slots=True)
class TableStanding:
    """`error`: why it stands still, if that is known."""

    state: str
    error: ErrorReport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What etcd says about a table. `at`: its checkpoint. `barrier`: its own. `lag`: the changefeed's."""

    kind: TableKind
    state: State | None
    """The changefeed's. None: it has not begun."""
    node: NodeId | None
    failing: ErrorReport | None = None
    """Why its node does not replicate it."""
    trouble: TableTrouble | None = None
    leaving: bool = False
    copying: bool = False
    beside: bool = False
    """It is copied anew beside the target's table."""
    held: bool = False
    at: Position | None = None
    barrier: Position | None = None
    lag: timedelta | None = None


def standing(facts: TableFacts, now: datetime) -> TableStanding:
    """The first reason that holds counts."""
    return next(_standings(facts, now))


def _standings(facts: TableFacts, now: datetime) -> Iterator[TableStanding]:
    trouble, runs = facts.trouble, facts.state in (State.NORMAL, State.WARNING)
    if facts.kind is TableKind.VIEW:
        yield TableStanding("view")
    if trouble is not None and trouble.waits_for_user:
        yield TableStanding(trouble.kind, trouble.error)
    if not runs:
        yield TableStanding(f"changefeed {facts.state or 'starting'}")
    if facts.node is None:
        yield TableStanding("no node")
    if facts.leaving:
        yield TableStanding("moving", facts.failing)
    if facts.failing is not None:
        yield TableStanding("failing", facts.failing)
    if facts.beside:
        yield TableStanding("recopy")
    if facts.copying:
        yield TableStanding("copy")
    if trouble is not None:
        yield TableStanding(trouble.kind, trouble.error)
    yield TableStanding(_progress(facts, now))


def _progress(facts: TableFacts, now: datetime) -> str:
    at, barrier = facts.at, facts.barrier
    if barrier is None or at is None or barrier.ts.seconds - at.ts.seconds > _BEHIND_SECONDS:
        return "behind"
    if facts.held:
        return "held"
    still = facts.lag is not None and min(facts.lag, now - barrier.ts.to_datetime()) > _OLD
    return "waiting" if still else "following"


def _trouble(stored: StoredStraggler) -> TableTrouble:
    return TableTrouble(TroubleKind.LOST if stored.lost else TroubleKind.STOPPED, stored.record.error)


_OF_SOURCE = frozenset({SourceUnavailable.code, SourceMajorityStalled.code, SourceRefused.code})
_OF_TARGET = frozenset({SinkUnavailable.code, SinkMajorityStalled.code, SinkRefused.code})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFaults:
    """`source`, `target`: the changefeeds whose source or target the node does not reach. `last`: its newest error, with its changefeed."""

    source: tuple[ChangefeedId, ...] = ()
    target: tuple[ChangefeedId, ...] = ()
    last: tuple[ChangefeedId | None, ErrorReport] | None = None


def not_ready(health: NodeHealth) -> str:
    """Empty when it is ready."""
    if health.ready:
        return ""
    if health.error is None:
        return "Spark has not run a job yet, or not for long enough since it last failed"
    return f"Spark runs no jobs, last tried at {health.error.at:%H:%M:%S} UTC: {health.error.message}"


def faults(
    health: NodeHealth | None,
    reports: Iterable[tuple[ChangefeedId, PositionReport]],
    as_owner: Iterable[tuple[ChangefeedId, ErrorReport]] = (),
) -> NodeFaults:
    """`reports`: of this node, in the runs that the changefeeds have now. `as_owner`: what it has met as the owner."""
    errors = [(id, report.error) for id, report in sorted(reports) if report.error is not None]
    errors += as_owner
    own = [(None, health.error)] if health is not None and health.error is not None else []
    return NodeFaults(
        source=tuple(id for id, error in errors if error.code in _OF_SOURCE),
        target=tuple(id for id, error in errors if error.code in _OF_TARGET),
        last=max([*own, *errors], key=lambda each: each[1].at, default=None),
    )
