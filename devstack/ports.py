"""`free_port`, `Ports`: free ports for servers that keep their ports over restarts."""

from __future__ import annotations

import fcntl
import json
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

_LOWEST = 20000
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS = 200
_DRAWN: set[int] = set()
_RESERVATIONS = Path(tempfile.gettempdir()) / f"sluice-ports-{os.getuid()}"
"""A file of which each process locks one byte for each port that it has drawn. Its locks end with it."""


def free_port() -> int:
    """A port outside the range that the kernel uses for outgoing connections.

    A port inside that range may be taken while its server is stopped; in the worst case a client that connects to it is connected
    to itself. No port is drawn twice, by whatever process of this machine: a free one may belong to a server that is about to start again.
    """
    highest = int(_EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    for _ in range(_ATTEMPTS):
        port = random.SystemRandom().randrange(_LOWEST, highest)
        if port not in _DRAWN and _reserved(port) and not taken(port):
            _DRAWN.add(port)
            return port
    raise RuntimeError(f"no free port between {_LOWEST} and {highest} after {_ATTEMPTS} attempts")


def _reserved(port: int) -> bool:
    try:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except BlockingIOError:
        return False
    return True


@cache
def _reservations() -> int:
    return os.open(_RESERVATIONS, os.O_RDWR | os.O_CREAT, 0o600)


def taken(port: int) -> bool:
    """Whether a server listens on the port; old connections of a stopped server do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


class Ports:
    """The ports of a stack's servers, kept in a file, so that a stack on the same data gets the same addresses again if they are free."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, int] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}

    def of(self, server: str) -> int:
        if server not in self._known or taken(self._known[server]):
            self._known[server] = free_port()
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps(self._known), encoding="utf-8")
        return self._known[server]
