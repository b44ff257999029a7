"""`OwnerTerm`: what all changefeeds share while one node is the owner, and what an owner needs of sources and sinks: `OwnerSource`, `Clusters`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.config.uri import ConnectionUri
from changefeed.errors import FencedError
from changefeed.position import Position
from changefeed.users import Principals
from coordination.decoded import Decoded
from coordination.fenced import FencedStore
from coordination.layout import Layout
from owner.ddl.feed import DdlFeed
from owner.ddl.jobs import InFlightDdl
from owner.table_starts import Catalog
from sink.sink import Permit, Sink
from source.loss import InBackground, Losses
from source.oplog.window import OplogWindow


class OwnerSource(Catalog, Protocol):
    """The methods wait for the source."""

    @property
    def feed(self) -> DdlFeed: ...

    def oplog_window(self) -> OplogWindow | None: ...
    def beat(self, name: str, *, checkpoint: Position, last_ts: ClusterTime | None) -> ClusterTime | None: ...
    def end_heartbeats(self, name: str) -> None: ...
    def losses(self, background: InBackground) -> Losses: ...
    def move_on(self) -> None: ...
    def read_principals(self) -> Principals: ...


class Clusters(Protocol):
    """Opens sources and sinks."""

    def acquire(self, uri: ConnectionUri, capture: Capture) -> OwnerSource: ...
    def release(self, uri: ConnectionUri, capture: Capture) -> None: ...
    def open_sink(self, configuration: Configuration) -> Sink:
        """Reaches nothing yet."""
        ...


@dataclass(frozen=True, slots=True)
class TermPermit:
    """Says for how many seconds the owner of this term may still write downstream, and raises when it may not: not each sink counts the seconds."""

    left: Callable[[], float]

    def __call__(self) -> float:
        left = self.left()
        if left <= 0:
            raise FencedError(
                "the term of this owner has ended, so it writes nothing more; another node may be the owner"
            )
        return left


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerTerm:
    """Shared by all changefeeds while this node is the owner."""

    store: FencedStore
    layout: Layout
    reader: Decoded
    clusters: Clusters
    permit: Permit
    """Asked before each command downstream."""
    wake: Callable[[], None]
    margin: timedelta
    """How long the Spark tasks of a node may still write after its lease is gone."""
    in_flight: InFlightDdl
