"""A proxy forwards bytes in both directions until it is asked to break or to hold them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import psutil
import pytest

from devstack.proxy import Loop, Proxy, opened_by


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of an echo server."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=_give_back, args=[connection], daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def _give_back(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(1024):
            connection.sendall(data)


@pytest.fixture
def proxy(echo: int) -> Iterator[Proxy]:
    with Loop() as loop:
        yield Proxy(loop, echo)


def _connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=10)


def test_bytes_go_through_and_come_back(proxy: Proxy) -> None:
    with _connected(proxy) as client:
        client.sendall(b"hello")
        assert client.recv(1024) == b"hello"


def test_what_was_sent_is_given_up_when_the_kernel_would(proxy: Proxy) -> None:
    with _connected(proxy) as client:
        client.sendall(b"a")
        assert client.recv(1024) == b"a"
        proxy.block(gives_up_seconds=0.1)
        client.sendall(b"b")
        assert client.recv(1024) == b""
        proxy.unblock()


def test_a_cut_ends_connections_and_lets_others_begin(proxy: Proxy) -> None:
    with _connected(proxy) as client:
        client.sendall(b"hello")
        client.recv(1024)
        proxy.cut()
        assert client.recv(1024) == b""
    with _connected(proxy) as client:
        client.sendall(b"again")
        assert client.recv(1024) == b"again"


def test_what_was_sent_while_nothing_goes_through_arrives_afterwards(proxy: Proxy) -> None:
    with _connected(proxy) as before:
        before.sendall(b"a")
        assert before.recv(1024) == b"a"
        proxy.block()
        with _connected(proxy) as after:
            for client in (before, after):
                client.sendall(b"b")
                client.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    client.recv(1024)
            proxy.unblock()
            for client in (before, after):
                client.settimeout(10)
                assert client.recv(1024) == b"b"


def test_a_server_that_is_not_there_shows_as_the_end_of_the_connection(echo: int) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as nobody:
        port = nobody.getsockname()[1]
    with Loop() as loop, _connected(Proxy(loop, port)) as client:
        assert client.recv(1024) == b""


def test_a_block_concerns_whom_it_is_said_of(proxy: Proxy) -> None:
    with _connected(proxy) as ours, _connected(proxy) as theirs:
        proxy.block("one", lambda: [theirs.getsockname()[1]])
        proxy.block("two", opened_by(list))
        for client in (ours, theirs):
            client.sendall(b"a")
        assert ours.recv(1024) == b"a"
        theirs.settimeout(0.2)
        with pytest.raises(TimeoutError):
            theirs.recv(1024)
        proxy.unblock("one")
        assert theirs.recv(1024) == b"a"
        proxy.block("two", opened_by(lambda: [psutil.Process()]))
        for client in (ours, theirs):
            client.sendall(b"b")
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.recv(1024)
