"""`ProvenHosts`: a host that has answered the driver is a host, and may be named in messages.

Before that, the host of a secret connection string may be a password in the wrong place. It is hidden where the driver's texts show a host,
and not as a word: a host may be called `source`.
"""

from __future__ import annotations

from pymongo.monitoring import (
    ServerHeartbeatFailedEvent,
    ServerHeartbeatListener,
    ServerHeartbeatStartedEvent,
    ServerHeartbeatSucceededEvent,
)

from credentials.redaction import reveal

DEFAULT_PORT = 27017


def texts_of_host(host: str, port: int) -> tuple[str, ...]:
    return f"{host}:{port}", f"('{host}', {port})", f"_tcp.{host}"


class ProvenHosts(ServerHeartbeatListener):
    def started(self, event: ServerHeartbeatStartedEvent) -> None:
        pass

    def succeeded(self, event: ServerHeartbeatSucceededEvent) -> None:
        host, port = event.connection_id
        reveal(*texts_of_host(host, port or DEFAULT_PORT))

    def failed(self, event: ServerHeartbeatFailedEvent) -> None:
        pass
