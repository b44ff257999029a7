"""`PromptDelivery`: what a connection to the target sends arrives within `ARRIVES_WITHIN`, or never.

Rows that arrive after their table has moved overwrite newer ones, and a command's time limit counts from its arrival. By default a kernel
goes on sending what an unreachable target has not confirmed, for up to fifteen minutes, and for about two after the process is gone:

    the driver gives up, or the process dies     SO_LINGER: the connection is reset, and the rest is thrown away
    the process is frozen                        TCP_USER_TIMEOUT: the kernel gives up by itself

The driver has no option for either. A pool reports a new connection before anybody may use it.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from pymongo.monitoring import ConnectionPoolListener, ConnectionReadyEvent

from sink.sink import ARRIVES_WITHIN

_DESCRIPTORS = Path("/dev/fd")
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_AT_ONCE: Final = struct.pack("ii", 1, 0)
_USER_TIMEOUT: Final = getattr(socket, "TCP_USER_TIMEOUT", None)
"""Linux has it."""


class PromptDelivery(ConnectionPoolListener):
    def connection_ready(self, event: ConnectionReadyEvent) -> None:
        """The event names the server only. Other connections to that port do not mind."""
        for connection in _connections():
            with connection, suppress(OSError):  # it may have ended since
                if connection.getpeername()[1] == event.address[1]:
                    deliver_promptly(connection, ARRIVES_WITHIN)

    def _nothing(self, event: Any) -> None: ...

    pool_created = pool_ready = pool_cleared = pool_closed = _nothing
    connection_created = connection_closed = connection_checked_in = connection_checked_out = _nothing
    connection_check_out_started = connection_check_out_failed = _nothing


def deliver_promptly(connection: socket.socket, within: timedelta) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    if _USER_TIMEOUT is not None:
        connection.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, int(within.total_seconds() * 1000))


def _connections() -> Iterator[socket.socket]:
    """Those of this process, each by a descriptor of its own: options belong to the connection."""
    for each in _DESCRIPTORS.iterdir():
        with suppress(OSError):  # it is closed since
            if stat.S_ISSOCK(os.fstat(int(each.name)).st_mode):
                found = socket.socket(fileno=os.dup(int(each.name)))
                if found.family in _INTERNET:
                    yield found
                else:
                    found.close()
