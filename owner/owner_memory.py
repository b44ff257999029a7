"""`OwnerMemory`, `ErrorReports`: what an owner knows of a changefeed besides what is in etcd."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from changefeed.documents.document import Document
from changefeed.errors import SluiceError
from changefeed.event import DdlEvent
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.source_history import SourceHistory
from changefeed.table import TableId
from owner.ddl.feed import Subscription, Taken
from owner.ddl.sightings import Sightings
from owner.tables.known_tables import KnownTables
from owner.tables.node_standings import NodeStandings
from owner.tables.progress import TableProgress


@dataclass(slots=True)
class OwnerMemory:
    """Derived from etcd and from the DDL feed. Dropped whenever it may be wrong."""

    tables: KnownTables | None = None
    progress: TableProgress = field(default_factory=TableProgress)
    standings: NodeStandings = field(default_factory=NodeStandings)
    entered: dict[tuple[Position, TableId | None], Document] = field(default_factory=dict)
    arrived: list[DdlEvent] = field(default_factory=list)
    error: SluiceError | None = None
    """Why a table that enters the filter could not be looked up."""
    subscription: Subscription | None = None
    sightings: Sightings = field(default_factory=Sightings)
    watching: bool = False
    history: SourceHistory | None = None
    held: list[Taken] = field(default_factory=list)
    """What may not be taken yet."""

    def take(self, taken: Taken, *, hold: bool) -> None:
        self.watching = taken.error is None
        self.held.append(taken)
        for each in () if hold else self.held:
            self.arrived += each.events
            self.history = each.history
            if each.sighting is not None:
                self.sightings = self.sightings.and_then(each.sighting)
        if not hold:
            self.held.clear()

    def leave_feed(self) -> None:
        self.arrived.clear()
        self.held.clear()
        self.sightings, self.watching = Sightings(), False
        if self.subscription is not None:
            self.subscription.close()
            self.subscription = None


class ErrorReports:
    """Returns the same report as long as the error is the same, so that reporting it at each tick changes nothing."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], ErrorReport] = {}
        self._now: dict[tuple[str, str], ErrorReport] = {}

    def next_tick(self) -> None:
        self._before, self._now = self._now, {}

    def of(self, error: SluiceError) -> ErrorReport:
        known = error.code, str(error)
        self._now[known] = self._before.get(known) or ErrorReport.of(error, datetime.now(UTC))
        return self._now[known]
