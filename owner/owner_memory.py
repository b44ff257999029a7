"""`OwnerMemory`, `Lifecycles`: what an owner knows of a changefeed besides what is in etcd."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

from changefeed.documents.document import Document
from changefeed.errors import SluiceError
from changefeed.event import DdlEvent
from changefeed.lifecycle import Command, ErrorReport, Lifecycle, Sign
from changefeed.position import Position
from changefeed.records.node import NodeId
from changefeed.records.requests import ChangefeedInfo
from changefeed.records.status import ChangefeedStatus
from changefeed.source_history import SourceHistory
from changefeed.table import TableId
from owner.ddl.feed import Subscription, Taken
from owner.ddl.sightings import Sightings
from owner.decision.status import commanded
from owner.etcd_view import OwnerView
from owner.tables.known_tables import KnownTables
from owner.tables.node_standings import NodeStandings
from owner.tables.progress import TableProgress


@dataclass(slots=True)
class OwnerMemory:
    """Derived from etcd and from the DDL feed. Dropped whenever it may be wrong."""

    tables: KnownTables | None = None
    progress: TableProgress = field(default_factory=TableProgress)
    standings: NodeStandings = field(default_factory=NodeStandings)
    entered: dict[tuple[Position, TableId | None], Document | SluiceError] = field(default_factory=dict)
    arrived: list[DdlEvent] = field(default_factory=list)
    error: SluiceError | None = None
    """Why a table that enters the filter could not be looked up."""
    subscription: Subscription | None = None
    sightings: Sightings = field(default_factory=Sightings)
    watching: bool = False
    history: SourceHistory | None = None
    held: list[Taken] = field(default_factory=list)
    """What may not be taken yet."""

    def follow(
        self, known: OwnerView, status: ChangefeedStatus, gone_at: Mapping[NodeId, float], now: float
    ) -> KnownTables:
        """Bring what is derived from etcd up to date. `gone_at`, `now`: in monotonic seconds."""
        assert status.checkpoint is not None, "expected a changefeed that has begun"
        if self.tables is None:
            self.tables = KnownTables(known.bases, known.records.values())
        self.tables.take(known.records.values())
        nodes = known.nodes(gone_at, self.standings.failing(known.processors))
        self.progress = self.progress.next(self.tables.replicated, nodes, known.floor(status.checkpoint))
        self.standings = self.standings.next(nodes, status.run, now)
        return self.tables

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


class Lifecycles:
    """Moves lifecycles on, by the clock of this process.

    It returns the same report as long as an error is the same, so that reporting it at each tick changes nothing.
    """

    def __init__(self, random: Random) -> None:
        """`random`: spreads retries."""
        self._random = random
        self._before: dict[tuple[str, str], ErrorReport] = {}
        self._now: dict[tuple[str, str], ErrorReport] = {}

    def next_tick(self) -> None:
        self._before, self._now = self._now, {}

    def report(self, error: SluiceError) -> ErrorReport:
        known = error.code, str(error)
        self._now[known] = self._before.get(known) or ErrorReport.of(error, datetime.now(UTC))
        return self._now[known]

    def commanded(self, info: ChangefeedInfo, status: ChangefeedStatus) -> Lifecycle:
        """The lifecycle after the user's newest change."""
        return commanded(info, status, now=datetime.now(UTC), random=self._random)

    def after(self, lifecycle: Lifecycle, event: Command | Sign | SluiceError) -> Lifecycle:
        what = self.report(event) if isinstance(event, SluiceError) else event
        return lifecycle.after(what, now=datetime.now(UTC), random=self._random)
