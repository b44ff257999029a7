"""`Store`: what a sink of files needs of the place where its files are.

A name is a path within the place, `log/7/000000000001.json`. A file has its whole content or does not exist, and is never changed: there is
no operation that replaces one. `create` decides between writers; everything else needs no order.

An operation that failed with `SinkUnavailable` may have happened, and may still happen later. Callers repeat what can be repeated: a name
that nobody else uses, or the same content under the same name.

`RETRIES` counts how often this process has sent a request to a store again. For metrics.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Protocol

from sluice_client.feed_store import FeedStore


class NewFile(Protocol):
    """A file that is being written. Nobody sees it, or nobody looks for it, before `end` has returned; then it is durable."""

    def write(self, content: bytes) -> None: ...

    def end(self) -> None: ...

    def close(self) -> None:
        """The content does not matter any more. Never raises."""


class Store(FeedStore, Protocol):
    """A store that is read, and written."""

    if_empty: str
    """What a user should look at when files are gone that were there."""

    def check(self) -> None:
        """Raises if one of the operations below does not work here. Leaves nothing."""

    def empty(self) -> bool: ...

    def create(self, name: str, content: bytes) -> bool:
        """A conditional put: False if the file was there already, whatever it contains. True if this call made it."""

    def new(self, name: str) -> NewFile:
        """A file under a name that nobody else uses."""

    def remove(self, name: str) -> None:
        """The file need not exist."""

    def below(self, folder: str) -> Iterable[str]:
        """The names of all files in it, at any depth; maybe also those by which files are to be removed that were begun with `new` and never ended."""

    def tidy(self, folder: str, begins: str = "") -> None:
        """Nobody writes here files any more whose names begin so: removes what was begun with `new` and never ended, as far as `below` does not
        show it, and the folder if it is empty.
        """


def create_same(store: Store, name: str, content: bytes) -> bool:
    """As `create`; True too if the file exists with this content: an earlier attempt wrote it."""
    return store.create(name, content) or store.read(name) == content


class Retries:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    def add(self, count: int) -> None:
        with self._lock:
            self._count += count

    @property
    def count(self) -> int:
        return self._count


RETRIES = Retries()
