"""`OneServer`: a server selector for clients whose commands belong together.

A change stream that is read by plain commands has its cursor on one mongos, but the driver would send each `getMore` to any of them.
And what one member of a replica set reports about its oplog is not true of another's.
"""

from __future__ import annotations

from collections.abc import Sequence

from pymongo.server_description import ServerDescription
from pymongo.server_type import SERVER_TYPE


class OneServer:
    """Keeps the server that it chose first, the nearest one at that time, as long as that server is available."""

    def __init__(self) -> None:
        self._address: tuple[str, int | None] | None = None
        self._primary: tuple[str, int | None] | None = None

    def latest(self, *, primary: bool) -> tuple[str, int | None] | None:
        """The server of the last command that had to use the primary, or of the last one that could use any member."""
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
    """Whether the command has to use the primary, as writes have. It does not change which server is used for reads."""
    return len(servers) == 1 and servers[0].server_type == SERVER_TYPE.RSPrimary


def _distance(server: ServerDescription) -> float:
    return server.round_trip_time if server.round_trip_time is not None else float("inf")
