"""`OneServer`: a server selector for clients whose commands belong together.

The cursor of a change stream that is read by plain commands lives on one mongos; the driver would send each `getMore` to any of them. And what one
member of a replica set says of its oplog is not true of another's.
"""

from __future__ import annotations

from collections.abc import Sequence

from pymongo.server_description import ServerDescription
from pymongo.server_type import SERVER_TYPE


class OneServer:
    """Stays with the server it chose first, the one nearest by then, as long as that one is there."""

    def __init__(self) -> None:
        self._address: tuple[str, int | None] | None = None
        self._primary: tuple[str, int | None] | None = None

    def latest(self, *, primary: bool) -> tuple[str, int | None] | None:
        """Where the last command went: the last for the primary, or the last that was free to go elsewhere."""
        return self._primary if primary else self._address

    def __call__(self, servers: Sequence[ServerDescription]) -> Sequence[ServerDescription]:
        if _is_for_the_primary(servers):
            self._primary = servers[0].address
            return servers
        chosen = [server for server in servers if server.address == self._address] or sorted(servers, key=_distance)[:1]
        if chosen:
            self._address = chosen[0].address
        return chosen


def _is_for_the_primary(servers: Sequence[ServerDescription]) -> bool:
    """What writes: no choice, and none that says where reads should go from now on."""
    return len(servers) == 1 and servers[0].server_type == SERVER_TYPE.RSPrimary


def _distance(server: ServerDescription) -> float:
    return server.round_trip_time if server.round_trip_time is not None else float("inf")
