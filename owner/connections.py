"""`OwnerTerm`: what all changefeeds share while one node is the owner, and `Connections`: their sources and sinks.

Each source cluster is connected once and shared by its changefeeds. Only the methods of `SourceConnection` and `Sink` wait for a
cluster: a cluster that does not answer must not delay the owner's tick, which also serves the changefeeds of other clusters.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TypeAlias

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.config.uri import ConnectionUri
from changefeed.errors import FencedError
from changefeed.event import DdlEvent
from changefeed.position import Position, Window
from changefeed.records.requests import ChangefeedId
from changefeed.records.sync_point import PartResult, PassPlace, SyncPoint
from changefeed.table import TableName, TableSchema, TableSize
from changefeed.table_layout import TableLayout, as_shown
from changefeed.users import Principals
from coordination.decoded import Decoded
from coordination.fenced import FencedStore
from coordination.layout import Layout
from credentials.clients import Renewed
from credentials.secrets import expanded
from owner.ddl.feed import DdlFeed
from owner.ddl.jobs import InFlightDdl
from sink.opening import open_sink
from sink.sink import Permit, Sink, SourceFacts
from source.connection import connect as connect_to_source
from source.connection import deployment_of, is_config_server
from source.ddl_watch import DdlWatch
from source.loss import InBackground, Losses
from source.opening import open_losses, open_source
from source.oplog.window import OplogWindow
from source.source import Source
from source.tables.catalog import CatalogReading, read_layout


class SourceConnection:
    """One source cluster, read by one capture and connected at its first use. Its methods wait for the network: call them in worker threads."""

    def __init__(self, uri: ConnectionUri, capture: Capture) -> None:
        self._capture = capture
        self._connected: Renewed[Source] = Renewed(uri, lambda uri: open_source(uri, capture))
        self.feed = DdlFeed(self._open_watch)

    @property
    def _source(self) -> Source:
        """A missing credential or an unresolvable name is an error of the changefeeds that use the source."""
        return self._connected.get()

    def _open_watch(self, start: Position) -> DdlWatch:
        return self._source.open_watch(start)

    def read_tables(self, wanted: Callable[[TableName], bool]) -> CatalogReading:
        return self._source.read_tables(wanted)

    def sizes(self, names: Iterable[TableName]) -> Mapping[TableName, TableSize]:
        return self._source.sizes(names)

    def ddls(self, window: Window) -> list[DdlEvent]:
        found: list[DdlEvent] = []
        with closing(self._open_watch(window.start)) as watch:
            resolved = window.start
            while resolved < window.end:
                batch = watch.poll()
                if batch.trouble is not None:
                    raise batch.trouble
                found += batch.events
                resolved = batch.resolved
        return [event for event in found if event.position in window]

    def oplog_window(self) -> OplogWindow | None:
        return self._source.oplog_window()

    def losses(self, background: InBackground) -> Losses | None:
        """It is asked by the owner's thread, and waits for nothing."""
        return open_losses(self._capture, background, lambda: self._source)

    def read_principals(self) -> Principals:
        return self._source.read_principals()

    def beat(self, name: str, *, checkpoint: Position, last_ts: ClusterTime | None) -> ClusterTime | None:
        return self._source.beat(name, checkpoint=checkpoint, last_ts=last_ts)

    def end_heartbeats(self, name: str) -> None:
        self._source.end_heartbeats(name)

    def move_on(self) -> None:
        self._source.move_on()

    def close(self) -> None:
        """Waits until the DDL watches have ended."""
        self.feed.close()
        self._connected.close()


@dataclass(slots=True)
class _Shared:
    source: SourceConnection
    users: int


Compare: TypeAlias = Callable[[ChangefeedId, SyncPoint, PassPlace | None, threading.Event], PartResult | None]
"""Of another room: the owner does not know how two sides are compared. It waits for both, until the event is set. None: the point is too old
to be read."""


class Connections:
    def __init__(self, compare: Compare | None = None) -> None:
        """`compare`: how the two sides of a changefeed are compared at a point. None: they are not."""
        self.compare = compare
        self._lock = threading.Lock()
        self._shared: dict[tuple[str, Capture], _Shared] = {}

    def acquire(self, uri: ConnectionUri, capture: Capture) -> SourceConnection:
        """Each user must release it once."""
        with self._lock:
            shared = self._shared.get((uri.reference, capture))
            if shared is None:
                shared = self._shared[uri.reference, capture] = _Shared(SourceConnection(uri, capture), 0)
            shared.users += 1
            return shared.source

    def release(self, uri: ConnectionUri, capture: Capture) -> None:
        with self._lock:
            shared = self._shared[uri.reference, capture]
            shared.users -= 1
            if shared.users:
                return
            del self._shared[uri.reference, capture]
        threading.Thread(target=shared.source.close, name="source-close", daemon=True).start()

    def open_sink(self, configuration: Configuration, life: str, permit: Permit) -> Sink:
        facts = SourceFacts(release=partial(_release_of, configuration), layout_of=partial(_layout_of, configuration))
        return open_sink(configuration, source=facts, life=life, permit=permit)


def _release_of(configuration: Configuration) -> tuple[int, int]:
    """Waits for the source."""
    with closing(connect_to_source(expanded(configuration.source), capture=None)) as client:
        return deployment_of(client).version


def _layout_of(configuration: Configuration, schema: TableSchema) -> TableLayout | None:
    """Routers show the sharding of a table as a DDL of its own."""
    with closing(connect_to_source(expanded(configuration.source), capture=None)) as client:
        layout = read_layout(client, schema) if is_config_server(client) else None
        return as_shown(layout, configuration.columns_of(schema.name))


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


@dataclass(slots=True)
class FeedPermit:
    """The term's, until another owner of the changefeed takes the place of this one: what still runs may not write between what that one does."""

    of_term: Permit
    ended: bool = False

    def __call__(self) -> float:
        if self.ended:
            raise FencedError("the changefeed was changed or removed, so what began before writes nothing more")
        return self.of_term()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerTerm:
    """Shared by all changefeeds while this node is the owner."""

    store: FencedStore
    layout: Layout
    reader: Decoded
    connections: Connections
    permit: Permit
    """Asked before each command downstream."""
    wake: Callable[[], None]
    margin: timedelta
    """How long the Spark tasks of a node may still write after its lease is gone."""
    in_flight: InFlightDdl

    @property
    def compare(self) -> Compare | None:
        return self.connections.compare
