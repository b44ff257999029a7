"""A server that only answers a driver's hello, as a router does. The development stack has no router."""

from __future__ import annotations

import socketserver
from struct import Struct
from typing import Any

import bson

_HEAD = Struct("<iiii")
_OLD_REPLY = Struct("<iqii")
_NEW_FLAGS = b"\x00\x00\x00\x00\x00"
_OLD_QUERY, _OLD_ANSWER, _MESSAGE = 2004, 1, 2013
_MORE_TO_COME = 2


class Router(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        """A driver sends its first hello in the protocol of old servers."""
        greeting = bson.encode(_GREETING)
        while head := self.rfile.read(_HEAD.size):
            size, request, _, kind = _HEAD.unpack(head)
            body = self.rfile.read(size - _HEAD.size)
            if kind == _OLD_QUERY:
                self._send(request, _OLD_ANSWER, _OLD_REPLY.pack(0, 0, 0, 1) + greeting)
            elif not body[0] & _MORE_TO_COME:
                self._send(request, _MESSAGE, _NEW_FLAGS + greeting)

    def _send(self, request: int, kind: int, body: bytes) -> None:
        self.wfile.write(_HEAD.pack(_HEAD.size + len(body), 0, request, kind) + body)


_GREETING: dict[str, Any] = {
    "ismaster": True,
    "isWritablePrimary": True,
    "msg": "isdbgrid",
    "maxBsonObjectSize": 16 << 20,
    "maxMessageSizeBytes": 48_000_000,
    "maxWriteBatchSize": 100_000,
    "minWireVersion": 0,
    "maxWireVersion": 17,
    "ok": 1.0,
}
