"""Fixtures for tests of readers that make a MongoDB from messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from devstack.mongodb.server import Client
from sink.reading import replica
from sink.reading.place import COLLECTION
from tests.component.sink.killed_reader import MORTAL, Death


@pytest.fixture
def death(monkeypatch: pytest.MonkeyPatch) -> Death:
    death = Death()
    for kind, name in MORTAL:
        death.watches(monkeypatch, kind, name)
    monkeypatch.setattr(replica, "_ROWS", 3)
    return death


@pytest.fixture
def emptied(target_client: Client) -> Iterator[Callable[[], None]]:
    def empty() -> None:
        target_client.drop_database("shop")
        target_client[COLLECTION[0]][COLLECTION[1]].delete_many({})

    empty()
    yield empty
    empty()
