"""`WebListener`: the console's own port: HTTP/1.1 and TLS around a `Site`, and streams of what changes on its pages.

The standard library's server serves: a thread a connection, at most 128 of them, of which 32 may be streams. Starlette with uvicorn would be two
more packages in the image and an event loop beside the threads of the admin API, to send six kinds of pages to a handful of people.

A stream sends a section when it has changed, and each second or two a tick: when what is shown was read, and why it may be old.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import structlog

from admin.http_server import HttpListener, WebServer
from admin.server import ServerTls
from changefeed.errors import NotFoundError, SluiceError
from console.frame import WebPage
from console.site import Site, WebAnswer, WebRequest
from console.words import clock
from credentials.redaction import redacted
from credentials.secrets import FreshFiles

_TIMEOUT_SECONDS = 10
_MOST_CONNECTIONS, _MOST_STREAMS = 128, 32
_MOST_BODY = 64 << 10
_TICK_SECONDS = 1.0
_HEADERS = (
    (
        "Content-Security-Policy",
        (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
            "frame-ancestors 'none'; base-uri 'none'"
        ),
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "same-origin"),  # with no-referrer a browser would hide the Origin of a form, too
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)

_log = structlog.get_logger()


class WebListener(HttpListener):
    def __init__(self, address: str, site: Site, tls: ServerTls | None) -> None:
        stopping, streams = threading.Event(), threading.BoundedSemaphore(_MOST_STREAMS)

        class Handler(_WebHandler):
            pass

        def opened(at: tuple[str, int]) -> _WebServer:
            certificate = FreshFiles("the console's certificate", tls.files, partial(_context, tls)) if tls else None
            return _WebServer(at, Handler, certificate)

        Handler.site, Handler.secure, Handler.stopping, Handler.streams = site, tls is not None, stopping, streams
        super().__init__("console_address", address, "console", opened)
        self._stopping = stopping

    def stop(self) -> None:
        """Streams end by themselves; a reader that is slow is not awaited. May be called twice."""
        self._stopping.set()
        super().stop()


def _context(tls: ServerTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(tls.cert, tls.key)
    if tls.client_ca is not None:
        context.load_verify_locations(tls.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class _WebServer(WebServer):
    request_queue_size = 64

    def __init__(
        self, address: tuple[str, int], handler: type[_WebHandler], certificate: FreshFiles[ssl.SSLContext] | None
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._certificate = certificate
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Hands are shaken here, so that one that is slow keeps no other waiting."""
        try:
            request.settimeout(_TIMEOUT_SECONDS)
            if self._certificate is not None:
                request = self._certificate.value().wrap_socket(request, server_side=True)
        except OSError:  # of a client that speaks no TLS, or has no certificate
            self.shutdown_request(request)
        else:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()


class _WebHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "sluice"
    sys_version = ""
    timeout = _TIMEOUT_SECONDS
    site: Site
    secure: bool
    stopping: threading.Event
    streams: threading.BoundedSemaphore

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _MOST_BODY:
            self.close_connection = True
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        body = self.rfile.read(int(length)).decode("utf-8", errors="replace")
        self._answer(dict(parse_qsl(body, keep_blank_values=True)))

    def _answer(self, form: dict[str, str] | None) -> None:
        try:
            answer = self.site.answer(self._asked(form))
        except Exception:  # noqa: BLE001 - the edge of a request; logged with its traceback
            _log.exception("console_request_failed", path=self.path[:200])
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        if answer.live is not None:
            self._stream(answer.live)
        else:
            self._send(answer)

    def _asked(self, form: dict[str, str] | None) -> WebRequest:
        parts = urlsplit(self.path if self.path.startswith("/") else "/")
        return WebRequest(
            path=tuple(unquote(part) for part in parts.path.removeprefix("/").split("/")),
            query=dict(parse_qsl(parts.query)),
            form=form,
            host=self.headers.get("Host", ""),
            origin=self.headers.get("Origin", ""),
            cookies=self.headers.get("Cookie", ""),
            address=str(self.client_address[0]),
            secure=self.secure,
        )

    def _send(self, answer: WebAnswer) -> None:
        body = answer.body.encode()
        self.send_response(answer.status)
        self._send_headers(answer.kind)
        for name, value in (("Location", answer.location), ("Set-Cookie", answer.cookie)):
            if value:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_headers(self, kind: str) -> None:
        self.send_header("Content-Type", kind)
        for name, value in _HEADERS:
            self.send_header(name, value)

    def _stream(self, draw: Callable[[], WebPage | None]) -> None:
        self.close_connection = True
        if not self.streams.acquire(blocking=False):
            text = f"This node already keeps {_MOST_STREAMS} pages fresh; this one is loaded again every 10 seconds."
            self._send(WebAnswer(status=HTTPStatus.SERVICE_UNAVAILABLE, body=text, kind="text/plain; charset=utf-8"))
            return
        try:
            self.send_response(HTTPStatus.OK)
            self._send_headers("text/event-stream")
            self.end_headers()
            self._follow(draw)
        except OSError:  # the browser is gone, or reads too slowly
            return
        finally:
            self.streams.release()

    def _follow(self, draw: Callable[[], WebPage | None]) -> None:
        sent: dict[str, str] = {}
        page: WebPage | None = None
        while not self.stopping.is_set():
            stale = self.site.stale
            try:
                page = draw()
            except NotFoundError as error:
                self._event("gone", {"text": redacted(str(error))})
                return
            except SluiceError as error:
                stale = stale or redacted(str(error))
            else:
                if page is None:
                    return
            for id, html in page.sections.items() if page is not None else ():
                if sent.get(id) != html:
                    self._event("section", {"id": id, "html": html})
                    sent[id] = html
            at = clock(page.at) if page is not None and page.at is not None else ""
            self._event("tick", {"at": at, "stale": stale})
            self.stopping.wait(_TICK_SECONDS)

    def _event(self, kind: str, data: dict[str, str]) -> None:
        self.wfile.write(f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode())

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002 - as in the base class
        """Of requests that are none. With the same headers as every answer."""
        status = HTTPStatus(code)
        self.close_connection = True
        self._send(WebAnswer(status=status, body=status.phrase, kind="text/plain; charset=utf-8"))

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: what is refused or fails is logged with what it was."""
