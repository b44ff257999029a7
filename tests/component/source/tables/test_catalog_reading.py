"""The catalog as a real server returns it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from bson.datetime_ms import DatetimeMS

from changefeed.capture import Capture
from changefeed.table import TableKind, TableName
from source.connection import Client, connect, deployment_of
from source.one_deployment import open_ddl_watch
from source.tables.catalog import CatalogReading, disturbs, passed, read_catalog, read_stable_catalog


@pytest.fixture(scope="module")
def client(source_uri: str) -> Iterator[Client]:
    with connect(f"{source_uri}&w=majority") as client:  # 4.4 may acknowledge what its majority's catalog lacks
        yield client


def read(client: Client, database: str) -> CatalogReading:
    return read_catalog(client, lambda name: name.db == database)


def test_the_source_says_what_it_is(client: Client) -> None:
    assert deployment_of(client).version >= (4, 2)


@pytest.mark.since("5.0")
def test_tables_of_every_kind_with_options_and_indexes(client: Client, database: str) -> None:
    db = client[database]
    db.create_collection("valid", validator={"qty": {"$gte": 0}})
    db.valid.create_index([("b", -1), ("a", 1)], unique=True, name="ba", partialFilterExpression={"a": {"$gt": 0}})
    db.create_collection("v", viewOn="valid", pipeline=[{"$match": {"a": 1}}])
    db.create_collection("weather", timeseries={"timeField": "at", "metaField": "sensor"})
    tables = {table.name.coll: table for table in read(client, database).tables}
    assert set(tables) == {"valid", "v", "weather"}

    valid = tables["valid"]
    assert (valid.kind, len(valid.id)) == (TableKind.COLLECTION, 32)
    assert valid.options.decode()["validator"] == {"qty": {"$gte": 0}}
    by_id, ba = (index.decode() for index in valid.indexes)
    assert by_id == {"v": 2, "key": {"_id": 1}, "name": "_id_"}
    assert list(ba["key"].items()) == [("b", -1), ("a", 1)]
    assert ba["unique"] is True
    assert ba["partialFilterExpression"] == {"a": {"$gt": 0}}

    view = tables["v"]
    assert (view.kind, view.id, view.indexes) == (TableKind.VIEW, f"view:{database}.v", ())
    assert view.options.decode() == {"viewOn": "valid", "pipeline": [{"$match": {"a": 1}}]}
    assert tables["weather"].kind is TableKind.TIMESERIES


def test_dates_of_all_years_may_stand_in_definitions(client: Client, database: str) -> None:
    far = DatetimeMS(2**48)
    client[database].create_collection("c", validator={"at": {"$lt": far}})
    client[database]["c"].create_index("a", partialFilterExpression={"at": {"$lt": far}})
    (table,) = read(client, database).tables
    assert table.options.decode()["validator"] == {"at": {"$lt": far}}
    assert table.indexes[1].decode()["partialFilterExpression"] == {"at": {"$lt": far}}


@pytest.mark.since("6.0")
def test_the_order_of_a_clustered_collection_is_an_option_and_no_index(client: Client, database: str) -> None:
    client[database].create_collection("c", clusteredIndex={"key": {"_id": 1}, "unique": True})
    (table,) = read(client, database).tables
    assert table.options.decode()["clusteredIndex"]["key"] == {"_id": 1}
    assert [index for index in table.indexes if index.decode().get("clustered")] == []


def test_only_wanted_tables_are_read(client: Client, database: str) -> None:
    for name in ("a", "b"):
        client[database].create_collection(name)
    reading = read_catalog(client, lambda name: name == TableName(database, "b"))
    assert [str(table.name) for table in reading.tables] == [f"{database}.b"]


def test_a_reading_is_stable_once_the_watch_has_passed_it_undisturbed(client: Client, database: str) -> None:
    client[database].create_collection("a")
    reading = read(client, database)
    with closing(open_ddl_watch(client, reading.position, Capture.CHANGE_STREAM)) as watch:
        batches = [watch.poll()]
        while not passed(reading, batches[-1].resolved):
            batches.append(watch.poll())
    assert not any(disturbs(reading, ddl) for batch in batches for ddl in batch.events)
    assert all(table.valid_from == reading.position for table in reading.tables)


def test_a_catalog_that_changes_while_it_is_read_is_read_again(client: Client, database: str) -> None:
    client[database].create_collection("first")
    looks: list[TableName] = []

    def wanted(name: TableName) -> bool:
        if name.db != database:
            return False
        if not looks:
            client[database].create_collection("second")
        looks.append(name)
        return True

    reading = read_stable_catalog(client, wanted, lambda start: open_ddl_watch(client, start, Capture.CHANGE_STREAM))
    assert {table.name.coll for table in reading.tables} == {"first", "second"}


def test_tables_nobody_wants_do_not_disturb(client: Client, fresh_database: Callable[[], str]) -> None:
    ours, other = fresh_database(), fresh_database()
    client[ours].create_collection("a")
    looks: list[TableName] = []

    def wanted(name: TableName) -> bool:
        if not looks:
            client[other].create_collection("b")
        looks.append(name)
        return name.db == ours

    reading = read_stable_catalog(client, wanted, lambda at: open_ddl_watch(client, at, Capture.CHANGE_STREAM))
    assert [str(table.name) for table in reading.tables] == [f"{ours}.a"]
    assert looks.count(TableName(ours, "a")) == 1
    assert client[other].list_collection_names() == ["b"]
