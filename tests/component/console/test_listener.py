"""The console's port of a real node: TLS, headers, streams and their limit."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Certificates
from tests.component.node.server_process import Server
from tests.until import until

_OPERATOR = "o" * 40
_MOST_STREAMS = 32


@pytest.fixture
def secured(etcd_endpoint: str, tmp_path: Path) -> Iterator[tuple[Server, ssl.SSLContext]]:
    (tmp_path / "tokens").write_text(f"maria:operator:{_OPERATOR}\n")
    (tmp_path / "certificates").mkdir()
    certificates = Certificates(tmp_path / "certificates")
    cert, key = certificates.issue("node")
    tls = ("--admin-cert", str(cert), "--admin-key", str(key), "--token-file", str(tmp_path / "tokens"))
    with Server(etcd_endpoint, tmp_path / "log", *tls) as started:
        yield started, ssl.create_default_context(cafile=str(certificates.ca))


class Visit:
    """One connection."""

    def __init__(self, server: Server, context: ssl.SSLContext | None = None) -> None:
        self.host = server.console.removeprefix("http://")
        port = int(self.host.partition(":")[2])
        self.link = (
            http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
            if context is not None
            else http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        )

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> http.client.HTTPResponse:
        self.link.request(method, path, body, headers)
        return self.link.getresponse()

    def event(self, answer: http.client.HTTPResponse) -> tuple[str, dict[str, Any]]:
        kind = answer.readline().decode().removeprefix("event: ").strip()
        data = json.loads(answer.readline().decode().removeprefix("data: "))
        answer.readline()
        return kind, data


@pytest.fixture(scope="module")
def open_server(etcd_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(etcd_endpoint, tmp_path_factory.mktemp("open") / "log") as started:
        yield started


def test_each_answer_forbids_what_is_not_ours(open_server: Server) -> None:
    large = {"Content-Length": str(10 << 20)}
    asked: list[tuple[str, str, dict[str, str]]] = [
        *(
            ("GET", path, {})
            for path in ("/", "/console.js", "/nothing", "/feed/nothing", "/feed/a%00b%2F..%2F", "//", "/%ff")
        ),
        *(
            ("POST", "/", {}),
            ("POST", "/feed/x/act/pause", large),
            ("PUT", "/", {}),
            ("GET", "/live?path=/nothing", {}),
        ),
        ("GET", "/", {"Host": "evil.example"}),
    ]
    for method, path, headers in asked:
        visit = Visit(open_server)
        answer = visit.ask(method, path, **headers)
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"], path
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert (answer.status == 200) is (path in ("/", "/console.js", "//") and method == "GET" and not headers), (
            path,
            answer.status,
        )
        visit.link.close()
    assert "Traceback" not in open_server.log


def test_a_stream_tells_what_is_shown_and_the_33rd_is_told_that_there_are_32(open_server: Server) -> None:
    with ExitStack() as open_streams:
        for _ in range(_MOST_STREAMS):
            visit = Visit(open_server)
            answer = visit.ask("GET", "/live?path=/")
            open_streams.callback(answer.close)  # without this hold it would close by itself
            assert answer.headers["Content-Type"] == "text/event-stream"
            kind, data = visit.event(answer)
            assert (kind, data["id"]) == ("section", "cluster")
        refused = Visit(open_server).ask("GET", "/live?path=/")
        assert (refused.status, f"already keeps {_MOST_STREAMS}" in refused.read().decode()) == (503, True)
        assert Visit(open_server).ask("GET", "/").status == 200


def test_a_page_is_served_over_tls_to_who_signs_in(secured: tuple[Server, ssl.SSLContext]) -> None:
    server, context = secured
    visit = Visit(server, context)
    answer = visit.ask("GET", "/")
    assert (answer.status, answer.headers["Location"], answer.read()) == (303, "/login", b"")
    ours = {"Host": visit.host, "Origin": f"https://{visit.host}"}
    answer = visit.ask("POST", "/login", f"token={_OPERATOR}", **ours)
    cookie = answer.headers["Set-Cookie"]
    assert (answer.status, "Secure" in cookie, "HttpOnly" in cookie, answer.read()) == (303, True, True, b"")
    answer = visit.ask("GET", "/", Cookie=f'prefs={{"a":1}}; {cookie.partition(";")[0]}')
    assert (answer.status, b"maria (operator)" in answer.read()) == (200, True)
    with pytest.raises((http.client.HTTPException, OSError)):
        Visit(server).ask("GET", "/")
    assert _OPERATOR not in server.log


def test_a_stream_ends_with_its_login(secured: tuple[Server, ssl.SSLContext], tmp_path: Path) -> None:
    server, context = secured
    visit = Visit(server, context)
    ours = {"Host": visit.host, "Origin": f"https://{visit.host}"}
    answer = visit.ask("POST", "/login", f"token={_OPERATOR}", **ours)
    cookie = answer.headers["Set-Cookie"].partition(";")[0]
    answer.read()
    stream = visit.ask("GET", "/live?path=/", Cookie=cookie)
    assert visit.event(stream)[0] == "section"
    (tmp_path / "tokens").write_text(f"wall:viewer:{'v' * 40}\n")
    until(lambda: not stream.readline(), "the stream has ended", lambda: server.log)
    assert Visit(server, context).ask("GET", "/live?path=/", Cookie=cookie).status == 401


def test_a_node_ends_though_a_browser_reads_nothing(secured: tuple[Server, ssl.SSLContext]) -> None:
    server, context = secured
    host, _, port = Visit(server).host.partition(":")
    with ExitStack() as silent:
        for _ in range(8):
            silent.callback(socket.create_connection((host, int(port))).close)  # shakes no hands
        assert Visit(server, context).ask("GET", "/").status == 303
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
