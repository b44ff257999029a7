"""A server that only speaks: what recorded replies cost to read, and what commands cost to send, with no server's work beside it.

    python -m bench.replay_server PORT KIND EVENTS

As a source it answers a change stream with the replies of `recorded.py`, as fast as they are taken. As a target it takes every
bulk command and keeps nothing. It knows just the commands that Sluice and the naive replicator send.
"""

from __future__ import annotations

import socketserver
import sys
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

import bson
from bson.int64 import Int64
from bson.timestamp import Timestamp

from bench.recorded import EVENTS_A_SECOND, FIRST_SECOND, replies
from changefeed.cluster_time import ClusterTime
from source.resume_token import high_water_mark_token

_HEAD = Struct("<iiiiI")
_INT32: Callable[[bytes, int], tuple[int]] = Struct("<i").unpack_from
_OLD_REPLY = Struct("<qii")
_OP_REPLY, _OP_MSG = 1, 2013
_MORE_TO_COME = 2
_PER_REPLY = EVENTS_A_SECOND // 4
_ROWS = {"insert": b"documents", "update": b"updates", "delete": b"deletes"}


class ReplayServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, kind: str, events: int) -> None:
        """Listens once it has everything to say."""
        self.replies = list(replies(kind, events=events, per_reply=_PER_REPLY))
        self.end = FIRST_SECOND + events // EVENTS_A_SECOND + 1
        super().__init__(("127.0.0.1", port), _Connection)

    def at(self, number: int) -> bytes:
        return self.replies[number] if number < len(self.replies) else self._exhausted()

    def _exhausted(self) -> bytes:
        end = Timestamp(self.end, 1)
        token = {"_data": high_water_mark_token(ClusterTime.from_bson(end))}
        cursor = {"nextBatch": [], "postBatchResumeToken": token, "id": Int64(7), "ns": "admin.$cmd.aggregate"}
        return bson.encode({"cursor": cursor, "ok": 1.0, "operationTime": end})

    def hello(self) -> dict[str, Any]:
        address = f"127.0.0.1:{self.server_address[1]}"
        return {
            "ismaster": True,
            "isWritablePrimary": True,
            "secondary": False,
            "setName": "replay",
            "hosts": [address],
            "me": address,
            "maxBsonObjectSize": 16 << 20,
            "maxMessageSizeBytes": 48_000_000,
            "maxWriteBatchSize": 100_000,
            "logicalSessionTimeoutMinutes": 30,
            "minWireVersion": 0,
            "maxWireVersion": 25,
            "ok": 1.0,
        }


class _Connection(socketserver.BaseRequestHandler):
    server: ReplayServer

    def handle(self) -> None:
        self._next = 0
        while head := self._exactly(_HEAD.size):
            size, request, _, kind, flags = _HEAD.unpack(head)
            body = self._exactly(size - _HEAD.size)
            if kind != _OP_MSG:
                self._send_old(request, bson.encode(self.server.hello()))
                continue
            reply = self._answer(body)
            if not flags & _MORE_TO_COME:
                message = _HEAD.pack(_HEAD.size + 1 + len(reply), 0, request, _OP_MSG, 0)
                self.request.sendall(b"".join((message, b"\x00", reply)))

    def _send_old(self, request: int, reply: bytes) -> None:
        """A driver says its first hello in the protocol of old servers."""
        body = _OLD_REPLY.pack(0, 0, 1) + reply
        self.request.sendall(_HEAD.pack(_HEAD.size + len(body), 0, request, _OP_REPLY, 0) + body)

    def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            part = self.request.recv(min(size, 1 << 20))
            if not part:
                return b""
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _answer(self, body: bytes) -> bytes:
        end = 1 + _INT32(body, 1)[0]
        command = bson.decode(body[1:end])
        name = next(iter(command))
        match name:
            case "getMore":
                self._next += 1
                return self.server.at(self._next - 1)
            case "aggregate":
                return bson.encode(self._opened(command))
            case "insert" | "update" | "delete":
                count = _statements(body, end, _ROWS[name])
                return bson.encode({"n": count, "nModified": count, "ok": 1.0})
            case "buildInfo" | "buildinfo":
                return bson.encode({"version": "8.0.0", "versionArray": [8, 0, 0, 0], "ok": 1.0})
            case _:
                return bson.encode(self.server.hello())

    def _opened(self, command: dict[str, Any]) -> dict[str, Any]:
        stream = command["pipeline"][0]["$changeStream"]
        start: Timestamp = stream["startAtOperationTime"]
        self._next = (start.time - FIRST_SECOND) * EVENTS_A_SECOND // _PER_REPLY
        cursor = {"firstBatch": [], "id": Int64(7), "ns": "admin.$cmd.aggregate"}
        return {"cursor": cursor, "ok": 1.0, "operationTime": start}


def _statements(body: bytes, at: int, name: bytes) -> int:
    """How many documents stand in the message's document sequence of that name."""
    return sum(1 for sequence, _ in _sequences(body, at) if sequence == name)


def _sequences(body: bytes, at: int) -> Iterator[tuple[bytes, int]]:
    while at < len(body):
        end = at + 1 + _INT32(body, at + 1)[0]
        name_end = body.index(0, at + 5)
        name, at = body[at + 5 : name_end], name_end + 1
        while at < end:
            yield name, at
            at += _INT32(body, at)[0]


if __name__ == "__main__":
    with ReplayServer(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])) as server:
        server.serve_forever()
