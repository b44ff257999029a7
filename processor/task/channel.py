"""`Channel`: the connection between a driver and a staying task. The task opens it.

    task   ──name of the stay (16 bytes)──▶ driver
           ──hello──▶
           ◀──window──  ──outcome──▶  ◀──window──  ...  ◀──leave──

Each message is a pickle in a frame: length, HMAC-SHA256, content. The key is random, made for one stay, and travels in the task's
closure, so it is as secret as Spark's own traffic. The signature covers the direction and the number of the frame: a message that
another party has made, changed, repeated or moved is never unpickled. A stay is dialled once.
"""

from __future__ import annotations

import hmac
import pickle
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any

import structlog

_NAME_BYTES = 16
_MAC_BYTES = 32
_LENGTH = struct.Struct(">Q")
_HELLO_BYTES = 1024
_PIECE_BYTES = 1 << 20
_DIAL_SECONDS = 5.0
_UNANSWERED_MS = 30_000
_ACCEPT_PAUSE_SECONDS = 0.5
_KEEPALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", _UNANSWERED_MS))

_log = structlog.get_logger()


class ChannelLost(Exception):
    """The other side is gone, or is not the expected one. Never leaves the two modules that use a channel."""


@dataclass(frozen=True, slots=True)
class Call:
    """How a task reaches its driver."""

    host: str
    port: int
    name: bytes
    key: bytes = field(repr=False)


class Channel(AbstractContextManager["Channel"]):
    """One side of the connection. Only `hang_up` may be called while another thread uses it."""

    def __init__(self, connection: socket.socket, key: bytes, *, driver: bool) -> None:
        self._connection = connection
        self._key = key
        self._sends, self._receives = (b"driver", b"task") if driver else (b"task", b"driver")
        self._sent = self._received = 0
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            if hasattr(socket, option):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, message: object) -> None:
        """If it raises, the other side has not received the message."""
        content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._sent += 1
        frame = _LENGTH.pack(len(content)) + self._mac(self._sends, self._sent, content) + content
        try:
            self._connection.settimeout(None)
            self._connection.sendall(frame)
        except OSError as error:
            raise ChannelLost(str(error)) from error

    def receive(self, *, largest: int | None = None) -> Any:
        """Waits for the next message as long as the other side is connected."""
        try:
            self._connection.settimeout(_DIAL_SECONDS if largest is not None else None)
            [length] = _LENGTH.unpack(_exactly(self._connection, _LENGTH.size))
            if largest is not None and length > largest:
                raise ChannelLost(f"expected at most {largest} bytes, found {length}")
            mac, content = _exactly(self._connection, _MAC_BYTES), _exactly(self._connection, length)
        except OSError as error:
            raise ChannelLost(str(error)) from error
        self._received += 1
        if not hmac.compare_digest(mac, self._mac(self._receives, self._received, content)):
            raise ChannelLost("a message is not signed with this stay's key")
        return pickle.loads(content)  # noqa: S301 - signed by the other side

    def silent(self, seconds: float) -> bool:
        """Whether nothing arrives for this long. A lost connection is not silent: `receive` raises its error."""
        try:
            self._connection.settimeout(max(seconds, 0.0))
            self._connection.recv(1, socket.MSG_PEEK)
        except (TimeoutError, BlockingIOError):
            return True
        except OSError:
            return False
        return False

    def hang_up(self) -> None:
        """Both sides see the connection as lost at once."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()

    def _mac(self, direction: bytes, number: int, content: bytes) -> bytes:
        return hmac.digest(self._key, direction + _LENGTH.pack(number) + content, "sha256")


def dial(call: Call) -> Channel:
    """The task's side."""
    try:
        connection = socket.create_connection((call.host, call.port), _DIAL_SECONDS)
    except OSError as error:
        raise ChannelLost(f"{call.host}:{call.port} cannot be reached: {error}") from error
    try:
        connection.sendall(call.name)
        channel = Channel(connection, call.key, driver=False)
        channel.send("hello")
        if channel.receive(largest=_HELLO_BYTES) != "hello":
            raise ChannelLost(f"{call.host}:{call.port} does not expect this task")
    except (OSError, ChannelLost) as error:
        connection.close()
        raise ChannelLost(f"{call.host}:{call.port} does not answer: {error}") from error
    return channel


class Switchboard:
    """The driver's side: listens for the tasks that it expects. `close` may be called twice."""

    def __init__(self, bind: str, host: str, port: int = 0) -> None:
        """`host`: the address that tasks dial. Port 0: any free port."""
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self._listener = socket.create_server((bind, port), family=family)
        self._host = host
        self._port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._expected: dict[bytes, tuple[bytes, Callable[[Channel], None]]] = {}
        threading.Thread(target=self._listen, name="switchboard", daemon=True).start()

    def expect(self, dialled: Callable[[Channel], None]) -> Call:
        """`dialled` is called at most once, in a thread of the switchboard."""
        call = Call(self._host, self._port, secrets.token_bytes(_NAME_BYTES), secrets.token_bytes(_MAC_BYTES))
        with self._lock:
            self._expected[call.name] = call.key, dialled
        return call

    def forget(self, call: Call) -> None:
        """The task of this call is no longer allowed to connect."""
        with self._lock:
            self._expected.pop(call.name, None)

    def close(self) -> None:
        with self._lock:
            self._expected.clear()
        self._closed.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in `accept`
        self._listener.close()

    def _listen(self) -> None:
        """Until `close`. A process that has no descriptor or no thread left for a call may have one for the next."""
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                self._not_accepted(error)
                continue
            try:
                threading.Thread(target=self._answer, args=(connection,), name="switchboard-call", daemon=True).start()
            except RuntimeError as error:
                connection.close()
                self._not_accepted(error)

    def _not_accepted(self, error: Exception) -> None:
        if not self._closed.is_set():
            _log.warning("calls_not_accepted", error=str(error))
            self._closed.wait(_ACCEPT_PAUSE_SECONDS)

    def _answer(self, connection: socket.socket) -> None:
        """Waits for a silent caller no longer than a dial may take."""
        try:
            self._connect(connection)
        except (OSError, ChannelLost) as error:
            _log.warning("strange_call_refused", error=str(error))
            connection.close()

    def _connect(self, connection: socket.socket) -> None:
        connection.settimeout(_DIAL_SECONDS)
        name = _exactly(connection, _NAME_BYTES)
        with self._lock:
            key, _ = self._expected.get(name, (b"", None))
        if not key:
            raise ChannelLost("no stay of this name is expected")
        channel = Channel(connection, key, driver=True)
        channel.receive(largest=_HELLO_BYTES)
        with self._lock:
            _, dialled = self._expected.pop(name, (b"", None))
        if dialled is None:
            raise ChannelLost("the stay has dialled already, or is no longer expected")
        channel.send("hello")
        dialled(channel)


def _exactly(connection: socket.socket, count: int) -> bytes:
    pieces = bytearray()
    while len(pieces) < count:
        piece = connection.recv(min(count - len(pieces), _PIECE_BYTES))
        if not piece:
            raise ChannelLost("the other side has hung up")
        pieces += piece
    return bytes(pieces)
