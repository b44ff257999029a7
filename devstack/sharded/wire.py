"""`Wire`: one connection to one server, on which commands are sent exactly as they are given.

A driver adds a session of its own to each command, but a router has to use one session and transaction number on several shards.
"""

from __future__ import annotations

import hmac
import secrets
import socket
from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import pbkdf2_hmac, sha256
from itertools import count
from struct import Struct
from typing import Any, Self

import bson
from bson.int64 import Int64

_MESSAGE = 2013
_HEADER = Struct("<iiiiIB")
_REPLY = Struct("<iiii")
_FLAGS = 5
"""Bytes before the document of a reply: the flags, and the kind of the section."""


MAJORITY = {"w": "majority", "wtimeout": 60_000}
"""The write concern that config servers and shards ask for in their own commands."""


class CommandFailed(Exception):
    """`reply` is the server's."""

    def __init__(self, command: Mapping[str, Any], reply: Mapping[str, Any], reason: Mapping[str, Any]) -> None:
        self.reply = reply
        self.code = int(reason.get("code", 0))
        super().__init__(f"{next(iter(command))}: {reason.get('errmsg', reason)} (code {self.code})")


class Wire:
    """For one thread. With a user it authenticates."""

    def __init__(self, port: int, *, user: str = "", password: str = "", timeout_seconds: float = 120) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._numbers = count(1)
        if user:
            self._authenticate(user, password)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def command(self, db: str, command: Mapping[str, Any]) -> dict[str, Any]:
        """The reply. An error of the command, of one of its writes, or of their acknowledgement is raised."""
        reply = self.ask(db, command)
        failed = reply.get("ok") != 1
        for reason in (reply if failed else None, *reply.get("writeErrors", ())[:1], reply.get("writeConcernError")):
            if reason:
                raise CommandFailed(command, reply, reason)
        return reply

    def ask(self, db: str, command: Mapping[str, Any]) -> dict[str, Any]:
        """The reply, whatever it says."""
        body = _encoded({**command, "$db": db})
        self._socket.sendall(_HEADER.pack(_HEADER.size + len(body), next(self._numbers), 0, _MESSAGE, 0, 0) + body)
        size, *_ = _REPLY.unpack(self._read(_REPLY.size))
        return bson.decode(self._read(size - _REPLY.size)[_FLAGS:])

    def find(self, db: str, coll: str, filter: Mapping[str, Any] | None = None, **more: Any) -> list[dict[str, Any]]:
        cursor = self.command(db, {"find": coll, "filter": filter or {}, **more})["cursor"]
        found = list(cursor["firstBatch"])
        while cursor["id"]:
            cursor = self.command(db, {"getMore": Int64(cursor["id"]), "collection": coll})["cursor"]
            found += cursor["nextBatch"]
        return found

    def _authenticate(self, user: str, password: str) -> None:
        """SCRAM-SHA-256 (RFC 7677)."""
        first = f"n={user},r={secrets.token_hex(12)}"
        begin = {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": f"n,,{first}".encode()}
        reply = self.command("admin", {**begin, "options": {"skipEmptyExchange": True}})
        said = bytes(reply["payload"]).decode()
        server = dict(part.split("=", 1) for part in said.split(","))
        salted = pbkdf2_hmac("sha256", password.encode(), b64decode(server["s"]), int(server["i"]))
        key = hmac.digest(salted, b"Client Key", "sha256")
        last = f"c=biws,r={server['r']}"
        signature = hmac.digest(sha256(key).digest(), f"{first},{said},{last}".encode(), "sha256")
        proof = b64encode(bytes(one ^ other for one, other in zip(key, signature, strict=True))).decode()
        payload = f"{last},p={proof}".encode()
        self.command("admin", {"saslContinue": 1, "conversationId": reply["conversationId"], "payload": payload})

    def _read(self, size: int) -> bytes:
        read = bytearray()
        while len(read) < size:
            part = self._socket.recv(size - len(read))
            if not part:
                raise ConnectionResetError("the server closed the connection")
            read += part
        return bytes(read)


def _encoded(command: Mapping[str, Any]) -> bytes:
    """As a field, and cut out of the document around it: the encoder moves an `_id` at the top before the command's name."""
    return bson.encode({"x": command})[7:-1]
