"""Clients for connection strings that may contain secrets: `open_client` makes one of the driver, `Renewed` opens it again when its credentials change.

A driver's client keeps the password that it was made with, and gives it to each new connection. Replaced ones are closed at the end only:
another thread may be in the middle of a call, and a connection that is open stays valid at the server.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import structlog
from pymongo import MongoClient
from pymongo import errors as driver
from pymongo.monitoring import (
    ServerHeartbeatFailedEvent,
    ServerHeartbeatListener,
    ServerHeartbeatStartedEvent,
    ServerHeartbeatSucceededEvent,
)

from changefeed.config.uri import ConnectionUri
from changefeed.driver_text import in_one_line
from changefeed.errors import ConfigurationError, SluiceError
from credentials.redaction import redacted, reveal
from credentials.secret_files import SecretFiles
from credentials.secrets import DEFAULT_PORT, Expansion, expansion, texts_of_host


def open_client(who: str, uri: str, *listeners: Any, **options: Any) -> MongoClient[dict[str, Any]]:
    """Does not connect yet. `who` is `source` or `sink`. `listeners`: of the driver's events.

    The driver's texts show the part that it could not parse, which may contain a password: the cause of an error is dropped too.
    """
    try:
        return MongoClient(uri, event_listeners=[ProvenHosts(), *listeners], **options)
    except (driver.InvalidURI, TypeError, ValueError):
        problem = "its connection string cannot be parsed; percent-escape user and password"
    except driver.ConfigurationError as error:
        problem = f"{redacted(in_one_line(str(error)))}; check its connection string"
    except OSError as error:
        problem = (
            f"a file that its connection string names cannot be used: {redacted(str(error))}; check its TLS options"
        )
    raise ConfigurationError([f"{who}: {problem}"])


class ProvenHosts(ServerHeartbeatListener):
    """A host that has answered the driver is a host, and may be named in messages.

    Before that, the host of a secret connection string may be a password in the wrong place. It is hidden where the driver's texts show a host,
    and not as a word: a host may be called `source`.
    """

    def started(self, event: ServerHeartbeatStartedEvent) -> None:
        pass

    def succeeded(self, event: ServerHeartbeatSucceededEvent) -> None:
        host, port = event.connection_id
        reveal(*texts_of_host(host, port or DEFAULT_PORT))

    def failed(self, event: ServerHeartbeatFailedEvent) -> None:
        pass


class Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)

_log = structlog.get_logger()


class Renewed(Generic[T]):
    """Many threads may share it. One waits while another opens what is new."""

    def __init__(self, uri: ConnectionUri, open: Callable[[str], T], files: SecretFiles | None = None) -> None:
        self._uri = uri
        self._open = open
        self._files = files
        self._made_of: Expansion | None = None
        self._present: T | None = None
        self._former: list[T] = []
        self._lock = threading.Lock()

    def get(self) -> T:
        """A file that cannot be read for a moment, while it is replaced, does no harm to what is open."""
        with self._lock:
            try:
                found = expansion(self._uri, self._files)
                if self._present is None or found != self._made_of:
                    self._replace(self._open(found.uri), found)
            except SluiceError as error:
                if self._present is None:
                    raise
                _log.warning("credentials_not_renewed", deployment=str(self._uri), error=str(error))
            assert self._present is not None
            return self._present

    def _replace(self, opened: T, made_of: Expansion) -> None:
        if self._present is not None:
            _log.info("credentials_renewed", deployment=str(self._uri))
            self._former.append(self._present)
        self._present, self._made_of = opened, made_of

    def close(self) -> None:
        """May be called twice."""
        with self._lock:
            present, self._present = self._present, None
            former, self._former = self._former, []
        for each in (*former, *([present] if present is not None else [])):
            each.close()
