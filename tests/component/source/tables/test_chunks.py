"""How a table is divided by a server that takes too long for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pymongo import MongoClient

from changefeed.table import TableName
from devstack.mongodb.server import Client, MongoDB
from source.connection import connect
from source.tables.catalog import read_catalog
from source.tables.chunks import Division, divide

_TABLE = TableName("shop", "orders")


@pytest.fixture
def slow(own_mongodb: Callable[..., MongoDB]) -> Iterator[Client]:
    """A server whose operations with a limit of time can be made to exceed it."""
    server = own_mongodb("slow", options=("--setParameter", "enableTestCommands=1"))
    client: Client = MongoClient(server.uri)
    client[_TABLE.db][_TABLE.coll].insert_many([{"_id": n, "text": "x" * 100} for n in range(5_000)])
    yield client
    client.close()


def _division(slow: Client, mode: object) -> Division:
    """20 chunks are wanted."""
    address = slow.address
    assert address is not None
    with connect(f"mongodb://{address[0]}:{address[1]}/?directConnection=true") as reader:
        [schema] = read_catalog(reader, _TABLE.__eq__).tables
        slow.admin.command("configureFailPoint", "maxTimeAlwaysTimeOut", mode=mode)
        try:
            return divide(reader, schema, chunk_bytes=35_000)
        finally:
            slow.admin.command("configureFailPoint", "maxTimeAlwaysTimeOut", mode="off")


def test_a_table_is_divided_by_a_smaller_sample_if_all_else_takes_too_long(slow: Client) -> None:
    by_the_server = _division(slow, "off").bounds
    assert 10 <= len(by_the_server) <= 25
    for failures in (1, 2, 3):
        bounds = [bound.decode()["_id"] for bound in _division(slow, {"times": failures}).bounds]
        assert len(bounds) >= 10
        assert bounds == sorted(set(bounds))


def test_a_table_that_cannot_be_divided_in_time_is_one_chunk(slow: Client) -> None:
    assert _division(slow, "alwaysOn") == Division()
