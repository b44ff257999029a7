"""`Looked`: what a validation has seen: source, sink, the target's tables, other changefeeds, and what an update replaces. Checks judge it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from admin.cluster_reader import tables_of
from admin.preflight.sink_probe import SinkFindings, TargetTables
from admin.preflight.source_probe import SourceFindings
from changefeed.capture import Capture
from changefeed.config.capture_choice import CaptureChoice
from changefeed.config.configuration import Configuration
from changefeed.config.tables.pattern import TablePattern
from changefeed.lifecycle import State
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord
from changefeed.records.requests import ChangefeedId, DesiredState, Reroute
from changefeed.table import TableId, TableName, TableSchema
from owner.ddl.stragglers import nameless
from owner.etcd_view import OwnerView
from owner.state import published
from owner.tables import route_change
from owner.tables.route_change import Place

_MOST_NAMED = 5


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
    before: Configuration | None = None
    """What an update replaces."""
    others: Mapping[ChangefeedId, OwnerView] = field(default_factory=dict)
    """The other changefeeds. `unreadable`: those of them whose records cannot be read."""
    unreadable: frozenset[ChangefeedId] = frozenset()
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


def named(names: Sequence[TableName | TablePattern]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(map(str, names[:_MOST_NAMED])) + (f" and {more} more" if more > 0 else "")


def writes_no_more(known: OwnerView) -> bool:
    ended = known.status is not None and known.status.lifecycle.state is State.FINISHED
    return ended or known.info.desired is DesiredState.REMOVED
