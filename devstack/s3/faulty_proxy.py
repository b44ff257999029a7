"""`FaultyProxy`: stands between an S3 server and its clients, and spoils chosen requests.

    LOST_REQUEST    the connection breaks; the server never sees the request
    LOST_ANSWER     the server does what was asked, and the connection breaks before the answer
    LATE_REQUEST    the connection breaks; the server sees the request when the next one has been answered
    CUT_ANSWER      half of the answer's body comes
    BROKEN, BUSY    500 and 503 instead of the server's answer; it never sees the request
    REFUSED         403
    EXPIRED         400, as for credentials that have expired
    UNCONDITIONAL   the server sees the request without its condition, as one that does not know conditional puts

Everything else reaches the server and its client as it was sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from devstack.ports import free_port


class Fault(StrEnum):
    LOST_REQUEST = "lost request"
    LOST_ANSWER = "lost answer"
    LATE_REQUEST = "late request"
    CUT_ANSWER = "cut answer"
    BROKEN = "500"
    BUSY = "503"
    REFUSED = "403"
    EXPIRED = "expired"
    UNCONDITIONAL = "unconditional"


_ANSWERS = {
    Fault.BROKEN: (500, "InternalError"),
    Fault.BUSY: (503, "SlowDown"),
    Fault.REFUSED: (403, "AccessDenied"),
    Fault.EXPIRED: (400, "ExpiredToken"),
}
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect"}
_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Request:
    number: int
    """From 0, since the last `watch`."""
    method: str
    path: str
    body: bytes
    headers: tuple[tuple[str, str], ...]

    @property
    def called(self) -> str:
        return f"{self.method} {self.path}"


Decide = Callable[[Request], Fault | None]


class FaultyProxy:
    def __init__(self, port: int) -> None:
        """`port`: the server's."""
        self._to = port
        self.port = free_port()
        self._lock = threading.Lock()
        self._decide: Decide = lambda _: None
        self._late: list[Request] = []
        self.requests: list[Request] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, name="s3-proxy", daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def watch(self, decide: Decide = lambda _: None) -> None:
        """Counts from 0 again. Requests that are late reach the server now."""
        self._deliver_late()
        with self._lock:
            self._decide, self.requests = decide, []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        headers = tuple((name, value) for name, value in handler.headers.items() if name.lower() not in _HOP_BY_HOP)
        with self._lock:
            request = Request(len(self.requests), handler.command, handler.path, body, headers)
            self.requests.append(request)
            fault = self._decide(request)
        if fault is Fault.LATE_REQUEST:
            self._late.append(request)
        if fault in (Fault.LOST_REQUEST, Fault.LATE_REQUEST):
            handler.close_connection = True
            return
        if fault in _ANSWERS:
            _refuse(handler, *_ANSWERS[fault])
            return
        if fault is Fault.UNCONDITIONAL:
            request = replace(request, headers=tuple(each for each in headers if each[0].lower() != "if-none-match"))
        status, answered, content = self._forward(request)
        if fault is Fault.LOST_ANSWER:
            handler.close_connection = True
            return
        _pass_on(handler, status, answered, content, cut=fault is Fault.CUT_ANSWER)
        self._deliver_late()

    def _deliver_late(self) -> None:
        with self._lock:
            late, self._late = self._late, []
        for request in late:
            self._forward(request)

    def _forward(self, request: Request) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = HTTPConnection("127.0.0.1", self._to, timeout=_TIMEOUT_SECONDS)
        try:
            connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in (*request.headers, ("Content-Length", str(len(request.body)))):
                connection.putheader(name, value)
            connection.endheaders(request.body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


def _pass_on(
    handler: BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], content: bytes, *, cut: bool
) -> None:
    handler.send_response_only(status)
    said = {name.lower(): value for name, value in headers}
    for name, value in headers:
        if name.lower() not in _HOP_BY_HOP:
            handler.send_header(name, value)
    head = handler.command == "HEAD"
    handler.send_header("Content-Length", said.get("content-length", "0") if head else str(len(content)))
    handler.end_headers()
    if head:
        return
    handler.wfile.write(content[: len(content) // 2] if cut else content)
    handler.close_connection = handler.close_connection or cut


def _refuse(handler: BaseHTTPRequestHandler, status: int, code: str) -> None:
    text = "" if handler.command == "HEAD" else f"<Error><Code>{code}</Code><Message>as a test wants</Message></Error>"
    _pass_on(handler, status, [("Content-Type", "application/xml")], text.encode(), cut=False)


def _handler(proxy: FaultyProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = 1 << 16

        def handle_expect_100(self) -> bool:
            super().handle_expect_100()
            self.wfile.flush()
            return True

        def do_GET(self) -> None:
            proxy.answer(self)

        do_PUT = do_POST = do_HEAD = do_DELETE = do_GET  # noqa: N815 - the base class determines the names

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: a test says what it saw."""

    return Handler
