"""`Looked`: what a validation has seen: source, sink, the target's tables, other changefeeds, and what an update replaces. Checks judge it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from admin.cluster_reader import tables_of
from admin.preflight.deployment import DeploymentIdentity
from admin.preflight.privileges import Privileges
from admin.preflight.sink_probe import SinkFindings, TargetTables
from changefeed.capture import Capture
from changefeed.config.capture_choice import CaptureChoice
from changefeed.config.configuration import Configuration
from changefeed.lifecycle import State
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.records.requests import ChangefeedId, DesiredState, Reroute
from changefeed.table import TableId, TableName, TableSchema
from owner.ddl.stragglers import nameless
from owner.decision.state import published
from owner.etcd_view import OwnerView
from owner.tables import route_change
from owner.tables.route_change import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFindings:
    """The results; an unreachable source has problems only."""

    problems: tuple[str, ...] = ()
    identity: DeploymentIdentity = field(default_factory=DeploymentIdentity)
    version: tuple[int, int] | None = None
    tables: tuple[TableSchema, ...] = ()
    choice: CaptureChoice | None = None
    """None if the requested capture is not possible."""
    read: bool = False
    """Whether `tables` are all that there are."""
    has_history: bool | None = None
    """Whether its oplog has an entry at one of the positions that were asked for. None: not asked, or it cannot be read."""
    privileges: Privileges = field(default_factory=Privileges)
    identity_lacks: str = ""
    """The privilege without which its id is unknown."""
    sharded: bool = False
    oplog_span: timedelta | None = None
    """How far back its oplog reaches now. None: it cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The changefeed whose configuration an update replaces, and what the user says to its routes."""

    known: OwnerView
    reroute: Reroute | None = None
    tables: tuple[TableSchema, ...] = ()
    """Its tables, of whatever filter."""

    @classmethod
    def of(cls, known: OwnerView, reroute: Reroute | None) -> Update:
        return cls(known=known, reroute=reroute, tables=tables_of(known).living)

    @property
    def begun(self) -> bool:
        status = self.known.status
        return status is not None and status.checkpoint is not None

    @property
    def without_name(self) -> Mapping[TableId, DdlRecord]:
        return nameless(self.known.records.values())

    def places(self, configuration: Configuration) -> list[Place]:
        """The places of the tables that stay. One whose name was taken is copied as a new one."""
        before = (self.known.status and self.known.status.routes) or self.known.info.configuration.routes
        wants, waiting = configuration.filter.wants_table, self.without_name
        stays = [table for table in self.tables if wants(table.name) and table.id not in waiting]
        return route_change.places(stays, before, configuration.routes, self.known.renames)

    def positions(self) -> list[Position]:
        status = self.known.status
        found = (status.checkpoint, published(status, self.known.barrier)) if status and status.checkpoint else ()
        return [at for at in found if at is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    configuration: Configuration
    source: SourceFindings
    sink: SinkFindings
    choice: CaptureChoice | None
    """Of an earlier decision, or what the source allows. None: nothing."""
    replaces: Update | None = None
    """None: it is a new changefeed."""
    reverses: bool = False
    """It is the way back of another one, to where its rows came from."""
    before: Configuration | None = None
    """What an update replaces."""
    others: Mapping[ChangefeedId, OwnerView] = field(default_factory=dict)
    """The other changefeeds. `unreadable`: those of them whose records cannot be read."""
    unreadable: frozenset[ChangefeedId] = frozenset()
    brokers: Mapping[ChangefeedId, str] = field(default_factory=dict)
    """Of others whose topics have names of this one's: the id of their Kafka, or nothing if that cannot be asked."""
    at_target: TargetTables | None = None
    """What the target has under the names of the tables that are `added` or `renamed`. None: it cannot be looked at."""

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """The source's tables that the configuration wants, as far as they can be read."""
        return self.source.tables

    @property
    def capture(self) -> Capture | None:
        return self.choice.capture if self.choice is not None else None

    def target(self, table: TableSchema) -> TableName:
        return self.configuration.routes.target(table.name)

    @property
    def merged(self) -> Mapping[TableName, Sequence[TableName]]:
        """Names at the target that several tables would have, which no rule asks for."""
        return self.configuration.routes.merged(table.name for table in self.tables)

    @property
    def moving(self) -> list[Place]:
        """Of an update."""
        places = self.replaces.places(self.configuration) if self.replaces is not None else []
        return [place for place in places if place.moves]

    @property
    def added(self) -> list[TableSchema]:
        """The tables whose replication begins. An update copies those that it adds; the others are there already."""
        if self.replaces is None:
            return list(self.tables)
        begins = {place.table.id for place in self.moving if self.replaces.reroute is Reroute.COPY}
        known = {schema.id for schema in self.replaces.tables} - self.replaces.without_name.keys()
        return [table for table in self.tables if table.id not in known or table.id in begins]

    @property
    def renamed(self) -> set[TableName]:
        """The new names of renamed tables, except those that a rename frees first."""
        if self.replaces is None or self.replaces.reroute is not Reroute.RENAME:
            return set()
        return {place.to for place in self.moving} - {place.at for place in self.moving}

    def may_look_at(self, names: Iterable[TableName]) -> frozenset[TableName]:
        """The target's names of these that its user may look at."""
        privileges = self.sink.privileges
        return frozenset(name for name in names if privileges is not None and privileges.may_look_at(name))


Check: TypeAlias = Callable[[Looked], Iterable[str]]
"""Yields problems, or warnings."""


def writes_no_more(known: OwnerView) -> bool:
    ended = known.status is not None and known.status.lifecycle.state is State.FINISHED
    return ended or known.info.desired is DesiredState.REMOVED
