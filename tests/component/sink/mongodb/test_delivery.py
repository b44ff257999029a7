"""Rows that the network holds back do not arrive when nobody waits for them any more: with a real server, and by the kernel's own behaviour."""

from __future__ import annotations

import errno
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from changefeed.errors import SinkUnavailable
from devstack.mongodb.server import Client
from devstack.proxy import Loop, Proxy
from sink.mongodb.commander import Commander
from sink.mongodb.connection import connect
from sink.mongodb.delivery import deliver_promptly
from sink.sink import ARRIVES_WITHIN
from tests.until import until

_SENDS_AND_STAYS = """
import socket, sys
from datetime import timedelta
from sink.mongodb.delivery import deliver_promptly
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.sendall(b"before")
sys.stdin.readline()
deliver_promptly(connection, timedelta(seconds=100))
connection.sendall(b"late")
print("sent", flush=True)
connection.recv(1)
"""


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as loop:
        yield loop


def _connections(client: Client, name: str) -> list[dict[str, Any]]:
    every = {"allUsers": True, "idleConnections": True}
    return list(client.admin.aggregate([{"$currentOp": every}, {"$match": {"appName": name}}]))


def test_rows_do_not_arrive_after_their_sender_has_given_up(loop: Loop, target_client: Client, database: str) -> None:
    address = target_client.address
    assert address is not None
    proxy = Proxy(loop, address[1])
    with connect(f"mongodb://{proxy.address}/?directConnection=true&appName={database}") as client:
        permits = iter([60.0])
        minute = timedelta(minutes=1)
        commander = Commander(client, permit=lambda: next(permits, 0.5), retry_for=minute, patience=timedelta())
        commander.begin()
        rows = {"insert": "rows", "writeConcern": {"w": "majority"}}
        commander.send(database, {**rows, "documents": [{"_id": 1}]}, "before")
        proxy.block()
        with pytest.raises(SinkUnavailable):
            commander.send(database, {**rows, "documents": [{"_id": 2}]}, "late")
    proxy.unblock()
    until(lambda: not _connections(target_client, database), "the end of all connections")
    assert [row["_id"] for row in target_client[database]["rows"].find()] == [1]


def test_what_a_killed_process_has_sent_does_not_arrive(loop: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        proxy = Proxy(loop, server.getsockname()[1])
        command = [sys.executable, "-c", _SENDS_AND_STAYS, str(proxy.port)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            accepted, _ = server.accept()
            with accepted:
                assert accepted.recv(100) == b"before"
                proxy.block()
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write("go on\n")
                process.stdin.flush()
                assert process.stdout.readline() == "sent\n"
                process.send_signal(signal.SIGKILL)
                process.wait()
                proxy.unblock()
                assert _received(accepted) == b""


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(100)
    except ConnectionResetError:
        return b""


def test_the_kernel_gives_up_by_itself() -> None:
    """A server that takes nothing. The process need not run for that."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        deliver_promptly(client, timedelta(milliseconds=300))
        client.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.sendall(b"late" * 10_000_000)
        until(lambda: client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ETIMEDOUT)


def test_connections_to_a_target_have_the_limit(target_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limited: list[tuple[int, timedelta]] = []

    def noted(connection: socket.socket, within: timedelta) -> None:
        limited.append((connection.getpeername()[1], within))

    monkeypatch.setattr("sink.mongodb.delivery.deliver_promptly", noted)
    with connect(target_uri) as client:
        client.admin.command("ping")
        assert client.address is not None
        assert (client.address[1], ARRIVES_WITHIN) in limited


def test_a_connection_without_the_limit_is_told(target_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("sink.mongodb.delivery.os.dup", full)
    with capture_logs() as logs, connect(target_uri) as client:
        client.admin.command("ping")
    assert "Too many open files" in next(log["error"] for log in logs if log["event"] == "late_rows_possible")
