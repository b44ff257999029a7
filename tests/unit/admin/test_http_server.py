"""What probes and Prometheus are answered."""

from __future__ import annotations

import socket
import struct
import threading
from http import HTTPStatus

import pytest
from prometheus_client import CollectorRegistry, Counter

from admin.http_server import HttpServer, answered

REGISTRY = CollectorRegistry()
Counter("rows", "Rows.", registry=REGISTRY).inc(3)


@pytest.mark.parametrize(
    ("path", "reason", "status", "said"),
    [
        ("/readyz", "", HTTPStatus.OK, b"ready\n"),
        ("/readyz", "no session", HTTPStatus.SERVICE_UNAVAILABLE, b"no session\n"),
        ("/healthz", "no session", HTTPStatus.OK, b"ok\n"),
        ("/metrics", "no session", HTTPStatus.OK, b"rows_total 3.0"),
        ("/secrets", "", HTTPStatus.NOT_FOUND, b"not found"),
    ],
)
def test_a_path_has_its_answer(path: str, reason: str, status: HTTPStatus, said: bytes) -> None:
    found, _, body = answered(REGISTRY, lambda: reason, tuple, path)
    assert found is status
    assert said in body


def test_a_ready_node_says_what_is_wrong_in_its_cluster_and_stays_ready() -> None:
    found, _, body = answered(REGISTRY, lambda: "", lambda: ["changefeed 'tz' stands still"], "/readyz")
    assert (found, body) == (HTTPStatus.OK, b"ready\nchangefeed 'tz' stands still\n")


def test_a_probe_that_does_not_wait_for_its_answer_leaves_no_trace(capfd: pytest.CaptureFixture[str]) -> None:
    """Each line of a node's log has its form."""
    asked, gone = threading.Event(), threading.Event()
    answering: list[threading.Thread] = []

    def not_ready() -> str:
        answering.append(threading.current_thread())
        asked.set()
        gone.wait(60)
        return "not yet"

    server = HttpServer("127.0.0.1:0", REGISTRY, not_ready)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port)) as probe:
        probe.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        assert asked.wait(60)
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gone.set()
    answering[0].join(60)
    assert not answering[0].is_alive()
    server.stop()
    assert capfd.readouterr() == ("", "")
