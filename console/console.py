"""`Console`: puts the parts of the web console together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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


class Console(WebListener):
    """Runs between `start` and `stop`."""

    def __init__(
        self,
        address: str,
        tls: ServerTls | None,
        guard: Guard,
        reader: ClusterReader,
        services: Services,
        oplog_left: Callable[[], Mapping[ChangefeedId, OplogLeft]],
    ) -> None:
        """`oplog_left`: empty unless this node is the owner."""
        self._observer = Observer(reader, oplog_left)
        sessions = Sessions(guard, reader.layout.cluster)
        site = Site(guard, sessions, self._observer, Actions(services), reader.serving.stale)
        super().__init__(address, site, tls)

    def start(self) -> None:
        self._observer.start()
        super().start()

    def stop(self) -> None:
        super().stop()
        self._observer.stop()
