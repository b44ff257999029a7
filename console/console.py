"""`Console`: puts the parts of the web console together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from admin.access import Guard
from admin.cluster_reader import ClusterReader
from admin.server import ServerTls, Services
from changefeed.records.requests import ChangefeedId
from console.actions import Actions
from console.listener import WebListener
from console.observer import Observer
from console.sessions import Sessions
from console.site import Site
from owner.source_watch import OplogLeft


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What only the node itself knows. `stale`: why what it reads in etcd may be old. `oplog_left`: empty unless it is the owner."""

    stale: Callable[[], str]
    oplog_left: Callable[[], Mapping[ChangefeedId, OplogLeft]]


class Console:
    """Runs between `start` and `stop`."""

    def __init__(
        self,
        address: str,
        tls: ServerTls | None,
        guard: Guard,
        reader: ClusterReader,
        services: Services,
        facts: NodeFacts,
    ) -> None:
        self._observer = Observer(reader, facts.oplog_left)
        sessions = Sessions(guard, reader.layout.cluster)
        site = Site(guard, sessions, self._observer, Actions(services), facts.stale)
        self._listener = WebListener(address, site, tls)

    @property
    def port(self) -> int:
        return self._listener.port

    def start(self) -> None:
        self._observer.start()
        self._listener.start()

    def stop(self) -> None:
        """May be called twice."""
        self._listener.stop()
        self._observer.stop()
