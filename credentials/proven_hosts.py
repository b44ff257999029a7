"""`ProvenHosts`: a host that has answered the driver is a host, and may be named in messages."""

from __future__ import annotations

from pymongo.monitoring import (
    ServerHeartbeatFailedEvent,
    ServerHeartbeatListener,
    ServerHeartbeatStartedEvent,
    ServerHeartbeatSucceededEvent,
)

from credentials.redaction import reveal


class ProvenHosts(ServerHeartbeatListener):
    def started(self, event: ServerHeartbeatStartedEvent) -> None:
        pass

    def succeeded(self, event: ServerHeartbeatSucceededEvent) -> None:
        reveal(event.connection_id[0])

    def failed(self, event: ServerHeartbeatFailedEvent) -> None:
        pass
