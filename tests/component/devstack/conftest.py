"""Streams on a fresh database of the source."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from devstack.mongodb import Client
from tests.component.devstack.watch import Watch


@pytest.fixture
def watch(source_client: Client, database: str) -> Watch:
    return Watch(source_client, database)


@pytest.fixture
def watching(source_client: Client, database: str) -> Callable[..., Watch]:
    return lambda **options: Watch(source_client, database, **options)
