"""`PromptDelivery`: what a connection to the target sends arrives within `ARRIVES_WITHIN`, or never.

Rows that arrive after their table has moved overwrite newer ones, and a command's time limit counts from its arrival. By default a kernel
goes on sending what an unreachable target has not confirmed, for up to fifteen minutes, and for about two after the process is gone:

    the driver gives up, or the process dies     SO_LINGER: the connection is reset, and the rest is thrown away
    the process is frozen                        TCP_USER_TIMEOUT: the kernel gives up by itself

The driver has no option for either. A pool reports a new connection before anybody may use it.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import structlog
from pymongo.monitoring import ConnectionPoolListener, ConnectionReadyEvent

from sink.sink import ARRIVES_WITHIN

_DESCRIPTORS = Path("/dev/fd")
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_AT_ONCE: Final = struct.pack("ii", 1, 0)
_USER_TIMEOUT: Final = getattr(socket, "TCP_USER_TIMEOUT", None)
"""Linux has it."""
_log = structlog.get_logger()


class PromptDelivery(ConnectionPoolListener):
    def connection_ready(self, event: ConnectionReadyEvent) -> None:
        """The event names the server only. Other connections to that port do not mind. The driver would hide an error."""
        try:
            for connection in _connections():
                with connection:
                    if _port_of(connection) == event.address[1]:
                        deliver_promptly(connection, ARRIVES_WITHIN)
        except OSError as error:
            _log.warning("late_rows_possible", error=f"a connection to the target has no limit: {error}")

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
        try:
            number = os.dup(int(each.name))
        except OSError as error:
            if error.errno != errno.EBADF:  # it is closed since
                raise
            continue
        if stat.S_ISSOCK(os.fstat(number).st_mode):
            yield socket.socket(fileno=number)
        else:
            os.close(number)


def _port_of(connection: socket.socket) -> int | None:
    """Of the other side, if there is one."""
    if connection.family not in _INTERNET:
        return None
    try:
        return int(connection.getpeername()[1])
    except OSError:  # it listens, or has ended
        return None
