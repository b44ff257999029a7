"""Ten thousand schemas in a real etcd: loaded in time, and folded in transactions that etcd accepts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Scope
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableId, TableName, TableSchema
from coordination.decoded import Decoded
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import Delete, EtcdConfig, Op, Put
from coordination.layout import Layout, encode
from coordination.mirror import Mirror
from schema_store.store import FoldStep, SchemaStore, fold

SOON = timedelta(seconds=20)
FEED = ChangefeedId("orders")
TABLES = 10_000


def at(seconds: int, token: str = "") -> Position:
    return Position(ClusterTime(seconds, 1), token)


def table(number: int) -> TableSchema:
    indexes = ({"_id": 1}, {"customer": 1, "at": -1}, {"code": 1})
    return TableSchema(
        id=TableId(f"{number:032x}"),
        name=TableName("shop", f"orders_{number}"),
        options=Document.of({"validator": {"$jsonSchema": {"required": ["customer", "code"]}}}),
        indexes=tuple(Document.of({"v": 2, "key": key, "name": "_".join(key)}) for key in indexes),
        valid_from=at(1),
    )


class Schemas:
    """Reads and writes the two groups of keys as owner and processor do."""

    def __init__(self, client: EtcdClient, cluster: str) -> None:
        self.client = client
        self.layout = Layout(cluster)
        self.mirror = Mirror(client, self.layout.root)
        self.decoded = Decoded(self.layout)

    def write(self, ops: list[Op]) -> int:
        return max(self.client.txn([], ops[first : first + 100]).revision for first in range(0, len(ops), 100))

    def read(self, revision: int) -> tuple[list[TableSchema], list[DdlRecord]]:
        view = self.mirror.at_least(revision, SOON)
        bases = self.decoded.group(TableSchema, view, self.layout.schemas(FEED))
        ddls = self.decoded.group(DdlRecord, view, self.layout.ddls(FEED))
        return [stored.record for stored in bases.values()], [stored.record for stored in ddls.values()]

    def carry_out(self, step: FoldStep) -> int:
        ops: list[Op] = [Put(self.layout.schema(FEED, schema.id), encode(schema)) for schema in step.write]
        ops += [Delete(self.layout.schema(FEED, ended)) for ended in step.remove]
        ops += [Delete(self.layout.ddl(FEED, position)) for position in step.ddls]
        return self.client.txn([], ops).revision


@pytest.fixture
def schemas(etcd_endpoint: str, etcd_prefix: str) -> Iterator[Schemas]:
    client = EtcdClient(EtcdConfig(endpoints=(etcd_endpoint,)))
    schemas = Schemas(client, etcd_prefix.strip("/"))
    yield schemas
    schemas.mirror.stop()
    client.close()


def test_loading_ten_times_as_many_tables_takes_about_ten_times_the_work(schemas: Schemas) -> None:
    """Measures this process's CPU time, which a busy machine does not stretch. Quadratic work would take a hundred times as much."""
    few, many = ([table(number) for number in range(count)] for count in (TABLES // 10, TABLES))
    assert _cpu_of_loading(schemas, many) < 30 * _cpu_of_loading(schemas, few)


def _cpu_of_loading(schemas: Schemas, tables: list[TableSchema]) -> float:
    fresh = Schemas(schemas.client, f"{schemas.layout.cluster}-{len(tables)}")
    written = fresh.write([Put(fresh.layout.schema(FEED, schema.id), encode(schema)) for schema in tables])
    begin = time.process_time()
    fresh.mirror.start()
    store = SchemaStore.from_records(*fresh.read(written))
    spent = time.process_time() - begin
    fresh.mirror.stop()
    assert store.versions.tables_at(at(2)) == tuple(tables)
    return spent


def test_a_dropped_database_of_a_thousand_tables_is_folded_and_means_the_same_throughout(schemas: Schemas) -> None:
    puts: list[Op] = []
    for number in range(1000):
        schema = table(number)
        drop = DdlEvent(position=at(5, f"{number:08X}"), type=DdlType.DROP, db="shop", table=schema.name, id=schema.id)
        record = DdlRecord(event=drop, scope=Scope(), state=DdlState.DONE, seen_at=datetime(2026, 11, 21, tzinfo=UTC))
        puts += [
            Put(schemas.layout.schema(FEED, schema.id), encode(schema)),
            Put(schemas.layout.ddl(FEED, drop.position), encode(record)),
        ]
    survivor = table(TABLES)
    revision = schemas.write([*puts, Put(schemas.layout.schema(FEED, survivor.id), encode(survivor))])
    schemas.mirror.start()
    bases, records = schemas.read(revision)
    for step in fold({schema.id: schema for schema in bases}, records, at(6)):
        revision = schemas.carry_out(step)
        versions = SchemaStore.from_records(*schemas.read(revision)).versions
        assert versions.tables_at(at(6)) == (survivor,)
    assert schemas.read(revision) == ([survivor], [])
