"""`OwnerTerm`: what all changefeeds share while one node is the owner, and what an owner needs of sources and sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from changefeed.capture import Capture
from changefeed.config.configuration import Configuration
from changefeed.config.uri import ConnectionUri
from changefeed.position import Position
from changefeed.records.status import LetterTotals
from changefeed.table import TableSchema
from changefeed.users.principals import Principals
from coordination.decoded import Decoded
from coordination.fenced import FencedStore
from coordination.layout import Layout
from owner.ddl.feed import DdlFeed
from owner.ddl.in_flight import InFlightDdl
from owner.deployments.heartbeats import HeartbeatWriter
from owner.deployments.leftovers import Sweeper
from owner.deployments.principal_copy import PrincipalTarget
from owner.deployments.watermarks import Marks
from owner.starts.catalog_at_start import Catalog
from sink.ddl import DdlApplier
from source.loss import InBackground, Losses
from source.oplog.window import OplogWindow


class OwnerSource(Catalog, HeartbeatWriter, Protocol):
    @property
    def feed(self) -> DdlFeed: ...

    def oplog_window(self) -> OplogWindow | None: ...
    def losses(self, background: InBackground) -> Losses: ...
    def move_on(self) -> None: ...
    def read_principals(self) -> Principals: ...


class Clusters(Protocol):
    """Opens sources and sinks."""

    def acquire(self, uri: ConnectionUri, capture: Capture) -> OwnerSource: ...
    def release(self, uri: ConnectionUri, capture: Capture) -> None: ...
    def open_sink(self, configuration: Configuration, life: str) -> DdlApplier: ...
    def claim_sink(
        self, configuration: Configuration, life: str, at: Position, tables: Iterable[TableSchema]
    ) -> None: ...
    def open_marks(self, configuration: Configuration, life: str) -> Marks | None: ...
    def open_sweeper(self, configuration: Configuration, life: str) -> Sweeper | None: ...
    def open_letters(self, configuration: Configuration, before: LetterTotals) -> LetterTotals: ...
    def principals_of(self, configuration: Configuration) -> PrincipalTarget: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerTerm:
    """Shared by all changefeeds while this node is the owner."""

    store: FencedStore
    layout: Layout
    reader: Decoded
    clusters: Clusters
    wake: Callable[[], None]
    margin: timedelta
    """How long the Spark tasks of a node may still write after its lease is gone."""
    in_flight: InFlightDdl
