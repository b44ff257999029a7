"""The state of a changefeed, written by its owner: the status, and the tables that its checkpoint does not wait for."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.config.tables.pattern import PatternList, TablePattern
from changefeed.config.tables.routes import Routes
from changefeed.lifecycle import ErrorReport, Lifecycle
from changefeed.position import Position
from changefeed.records.node import NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterTotals:
    """The rows that the target refuses, as the owner last counted their dead letters."""

    count: int = 0
    bytes: int = 0
    since: datetime | None = None
    """When the target refused the first of them, on its clock."""


CURRENT_FOR = timedelta(seconds=30)
"""How long an owner's statement stays valid that nothing is left to replicate."""
_MEASURED_FOR = timedelta(seconds=3)
"""How long an owner's measurement of the lag is shown as it is. An owner writes its status once a second while it makes progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedStatus:
    """The state of a changefeed, by its owner. Without a checkpoint it has not started: its tables are not known yet."""

    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    start: Position | None = None
    """Where it started: its base schemas are valid from here."""
    copied_from: Position | None = None
    """The same position, if it started with an initial copy of the existing tables."""
    taken_in_at: frozenset[Position] = frozenset()
    """Where the tables start that a wider filter added later. They are copied too."""
    tables: tuple[TablePattern, ...] | None = None
    """The patterns by which its tables were found. None: those of its configuration. Empty: the tables are about to be changed."""
    routes: Routes | None = None
    """The routes by which its tables have their names downstream. None: those of its configuration, until the owner has recorded them."""
    checkpoint: Position | None = None
    resolved: Position | None = None
    """Every DDL below it is recorded."""
    current_at: datetime | None = None
    """Everything that the source had committed by this moment, on the owner's clock, is downstream."""
    seen_at: datetime | None = None
    """When the owner last looked at the source, on the same clock. None: it has not yet."""
    behind: bool = True
    """Whether rows that the source has committed since may be missing downstream."""
    overdue_seconds: int | None = None
    """With a delay: by how much the oldest change that is not downstream is later than that, when the owner last looked."""
    run: int = 0
    """Counts the starts of its pipelines. Reports of an earlier run do not count for this one."""
    info_version: int
    """The `version` of the user's last change that was taken into account."""
    epoch: int
    capture: Capture = Capture.CHANGE_STREAM
    """The capture of the positions in etcd. Positions of two captures are not compared."""
    still: bool = False
    """No pipeline runs, and none will before the user's next change."""
    letters: LetterTotals = field(default_factory=LetterTotals)
    copying_since: datetime | None = None
    """Since when tables are being copied, on the owner's clock. None: no table is."""

    def lag(self, now: datetime) -> timedelta | None:
        """The greatest possible age of a write that is not downstream; zero while none is left. None before the changefeed has started.

        With a delay only what is beyond it counts.
        """
        if self.checkpoint is None:
            return None
        if self.overdue_seconds is not None and self.seen_at is not None:
            unseen = now - self.seen_at
            return timedelta(seconds=self.overdue_seconds) + (unseen if unseen >= _MEASURED_FOR else timedelta(0))
        since = self.current_at or self.checkpoint.ts.to_datetime()
        age = max(now - since, timedelta(0))
        if self.seen_at is not None and now - self.seen_at < _MEASURED_FOR:
            age = max(self.seen_at - since, timedelta(0))
        return age if self.behind or age > CURRENT_FOR else timedelta(0)

    def as_found(self, configuration: Configuration) -> Configuration:
        """With the tables and routes that it has now: those of an update count once the owner has taken the tables in and out."""
        tables = PatternList.of(self.tables or configuration.filter.tables)
        routes = configuration.routes if self.routes is None else self.routes
        if (tables, routes) == (configuration.filter.tables, configuration.routes):
            return configuration
        patterns = configuration.filter.model_copy(update={"tables": tables})
        return configuration.model_copy(update={"filter": patterns, "routes": routes})

    def follows(self, configuration: Configuration) -> bool:
        """Whether its tables are those of the configuration, under their names downstream. Nothing is started before they are."""
        same_tables = self.tables is None or self.tables == configuration.filter.tables
        return same_tables and not self.reroutes(configuration)

    def reroutes(self, configuration: Configuration) -> bool:
        return self.routes is not None and self.routes != configuration.routes


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A table that the changefeed's checkpoint does not wait for, and may have passed: it is stopped, or a DDL that waits for a user holds it,
    or it is catching up after that.
    """

    at: Position
    """Everything of the table before it is downstream, and so is every DDL of it that is done. The table may be further."""
    stopped: bool = False
    """Nothing of it is written until a user resumes it."""
    error: ErrorReport | None = None
    """Why it was stopped. None: a user stopped it."""
    moved_from: NodeId | None = None
    """The node on which it failed for a reason that may be the node's. If it fails on another one too, it is stopped."""
    since: datetime
