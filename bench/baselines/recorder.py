"""`Recorder`: stands between the product and a target, and keeps the bytes of each command that writes rows.

A command is kept without what binds it to its session, so that it can be sent again.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import bson
from bson.raw_bson import RawBSONDocument

_HEADER = struct.Struct("<iiiiIB")
"""Length, number, the number answered, the kind of message (OP_MSG), flags, the kind of the first section (a document)."""
_MESSAGE = 2013
_ROWS = frozenset({b"insert", b"update", b"delete", b"bulkWrite"})
_OF_A_SESSION = frozenset({"lsid", "txnNumber", "$clusterTime"})
_CHUNK = 1 << 20


class Recorder:
    def __init__(self, target: tuple[str, int], into: Path) -> None:
        self._target = target
        self._file: BinaryIO = into.open("wb")
        self._lock = threading.Lock()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.uri = f"mongodb://127.0.0.1:{self._door.getsockname()[1]}/?directConnection=true"

    def __enter__(self) -> Self:
        threading.Thread(target=self._listen, name="recorder", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._door.close()
        with self._lock:
            self._file.close()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:  # closed
                return
            server = socket.create_connection(self._target)
            for carry in (self._carry_commands, _carry_replies):
                threading.Thread(target=carry, args=(client, server), daemon=True).start()

    def _carry_commands(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError), client, server, client.makefile("rb") as messages:
            while size := messages.read(4):
                message = size + messages.read(int.from_bytes(size, "little") - 4)
                self._keep(message)
                server.sendall(message)

    def _keep(self, message: bytes) -> None:
        _, _, _, kind, flags, section = _HEADER.unpack_from(message)
        if kind != _MESSAGE or section != 0 or _name(message) not in _ROWS:
            return
        end = _HEADER.size + int.from_bytes(message[_HEADER.size : _HEADER.size + 4], "little")
        fields = RawBSONDocument(message[_HEADER.size : end])
        again = bson.encode({name: value for name, value in fields.items() if name not in _OF_A_SESSION})
        again += message[end:]  # rows may be a section of their own
        with self._lock:
            if not self._file.closed:
                self._file.write(_HEADER.pack(_HEADER.size + len(again), 0, 0, kind, flags, section) + again)


def _name(message: bytes) -> bytes:
    """The first field's, after the document's size and the field's type."""
    begin = _HEADER.size + 5
    return message[begin : message.index(b"\0", begin)]


def _carry_replies(client: socket.socket, server: socket.socket) -> None:
    with suppress(OSError), client, server:
        while some := server.recv(_CHUNK):
            client.sendall(some)
