"""`OneServer`: a server selector for clients whose commands belong together.

The cursor of a change stream that is read by plain commands lives on one mongos; the driver would send each `getMore` to any of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pymongo.server_description import ServerDescription


class OneServer:
    """Stays with the server it chose first, as long as that one is there."""

    def __init__(self) -> None:
        self._address: tuple[str, int | None] | None = None

    def __call__(self, servers: Sequence[ServerDescription]) -> Sequence[ServerDescription]:
        chosen = [server for server in servers if server.address == self._address] or list(servers[:1])
        if chosen:
            self._address = chosen[0].address
        return chosen
