"""`Renewed`: something that was opened with a connection string, and is opened again when its credentials have changed.

A driver's client keeps the password that it was made with, and gives it to each new connection. Replaced ones are closed at the end only:
another thread may be in the middle of a call, and a connection that is open stays valid at the server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import structlog

from changefeed.config.uri import ConnectionUri
from changefeed.errors import SluiceError
from credentials.expansion import Expansion, expansion
from credentials.secret_files import SecretFiles


class Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)

_log = structlog.get_logger()


class Renewed(Generic[T]):
    """Not thread-safe."""

    def __init__(self, uri: ConnectionUri, open: Callable[[str], T], files: SecretFiles | None = None) -> None:
        self._uri = uri
        self._open = open
        self._files = files
        self._made_of: Expansion | None = None
        self._present: T | None = None
        self._former: list[T] = []

    def get(self) -> T:
        """A file that cannot be read for a moment, while it is replaced, does no harm to what is open."""
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
        present, self._present = self._present, None
        former, self._former = self._former, []
        for each in (*former, *([present] if present is not None else [])):
            each.close()
