"""How a table is divided by a server that takes too long for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import bson
import pytest
from bson.max_key import MaxKey
from pymongo import MongoClient

from changefeed.table import TableName
from devstack.mongodb.server import Client, MongoDB
from source.connection import connect
from source.tables.catalog import read_catalog
from source.tables.chunks import Division, bound_at, divide

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


def test_a_table_is_divided_by_a_sample_if_the_server_takes_too_long(slow: Client) -> None:
    by_the_server = _division(slow, "off").bounds
    assert 10 <= len(by_the_server) <= 25
    bounds = [bound.decode()["_id"] for bound in _division(slow, {"times": 1}).bounds]
    assert len(bounds) >= 10
    assert bounds == sorted(set(bounds))


def test_long_strings_divide_a_table_by_their_beginnings(slow: Client) -> None:
    table = slow[_TABLE.db][_TABLE.coll]
    table.delete_many({})
    table.insert_many([{"_id": f"{n:04}" + "k" * 2_000} for n in range(1_000)])
    bounds = [bound.decode()["_id"] for bound in _division(slow, "off").bounds]
    assert len(bounds) >= 10
    assert max(map(len, bounds)) < 300


def test_what_lies_between_two_documents_is_a_bound_if_it_is_small() -> None:
    def found(last: object, following: object) -> object:
        bound = bound_at(*(bson.encode({"a": 1, "_id": each}) for each in (last, following)))
        return bound and bound.decode()["_id"]

    assert found(1, 2) == 2
    assert found("a" + "k" * 9_000, "b" + "k" * 9_000) == "b" + "k" * 249
    assert found("k" * 9_000, "k" * 9_001) is None
    assert found(b"a" * 9_000, b"b" * 9_000) is None
    assert found(1, MaxKey()) is None


def test_a_table_that_cannot_be_divided_in_time_is_one_chunk(slow: Client) -> None:
    assert replace(_division(slow, "alwaysOn"), size=None) == Division()
