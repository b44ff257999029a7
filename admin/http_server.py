"""`HttpServer`: `/metrics` for Prometheus, `/healthz` and `/readyz` for probes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from changefeed.errors import ConfigurationError

_TIMEOUT_SECONDS = 10
_TEXT = "text/plain; charset=utf-8"

_log = structlog.get_logger()


class WebServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is none; everything else is caught where it is answered."""


class HttpListener:
    """A server of the standard library. It listens between `start` and `stop`. `option`: that of the node which has its address."""

    def __init__(self, option: str, address: str, name: str, open: Callable[[tuple[str, int]], WebServer]) -> None:
        host, _, port = address.rpartition(":")
        try:
            self._server = open((host.strip("[]"), int(port)))
        except OSError as error:
            raise ConfigurationError([f"{option}: cannot listen on {address}: {error.strerror}"]) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name=name, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """May be called twice."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class HttpServer(HttpListener):
    """`not_ready` returns why the node is not ready, or an empty text; `remarks` what a user should know of a cluster that is, none as a rule."""

    def __init__(
        self,
        address: str,
        registry: CollectorRegistry,
        not_ready: Callable[[], str],
        remarks: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        class Handler(_Handler):
            answer = staticmethod(partial(answered, registry, not_ready, remarks))

        super().__init__("http_address", address, "http", lambda at: WebServer(at, Handler))


Answer = tuple[HTTPStatus, str, bytes]


def answered(
    registry: CollectorRegistry, not_ready: Callable[[], str], remarks: Callable[[], Iterable[str]], path: str
) -> Answer:
    match path:
        case "/metrics":
            return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry)
        case "/healthz":
            return HTTPStatus.OK, _TEXT, b"ok\n"
        case "/readyz":
            if reason := not_ready():
                return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, f"{reason}\n".encode()
            return HTTPStatus.OK, _TEXT, "".join(f"{line}\n" for line in ("ready", *remarks())).encode()
        case _:
            return HTTPStatus.NOT_FOUND, _TEXT, b"not found; the paths are /metrics, /healthz and /readyz\n"


class _Handler(BaseHTTPRequestHandler):
    server_version = "sluice"
    sys_version = ""
    timeout = _TIMEOUT_SECONDS
    answer: Callable[[str], Answer]

    def do_GET(self) -> None:
        try:
            status, kind, body = self.answer(self.path.partition("?")[0])
        except Exception:  # noqa: BLE001 - the edge of a request; logged with its traceback
            _log.exception("http_request_failed", path=self.path)
            status, kind, body = HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT, b"see the node's log\n"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: probes come every few seconds."""
