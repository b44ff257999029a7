"""A writer, and the same table on both sides."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devstack.mongodb.server import Client
from sink.mongodb.rows.row_writer import MongoRowWriter
from tests.component.sink.mongodb.rows.written_rows import Rows, permit


@pytest.fixture
def writer(target_client: Client) -> Iterator[MongoRowWriter]:
    writer = MongoRowWriter(target_client, permit=permit)
    yield writer
    writer.close()


@pytest.fixture
def source(source_client: Client, database: str) -> Rows:
    source_client[database].create_collection("rows")
    return source_client[database]["rows"]


@pytest.fixture
def target(target_client: Client, database: str) -> Rows:
    return target_client[database]["rows"]
