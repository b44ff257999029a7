from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings

from changefeed.config.configuration import Configuration
from changefeed.config.tables.pattern import TablePattern
from changefeed.documents.document import Document
from changefeed.errors import RecordUnreadable
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import Lifecycle
from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord, DdlState, Observation, ObservedTable, Scope
from changefeed.records.node import NodeId, NodeRecord, PositionReport, Role
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId, TableName, TableSchema
from coordination.etcd.protocol import KeyValue
from coordination.layout import (
    Layout,
    child,
    decode,
    encode,
)
from tests.unit.coordination.strategies import positions, tables

LAYOUT = Layout("prod")
ORDERS = ChangefeedId("orders")
NOW = datetime(2026, 11, 21, tzinfo=UTC)
AT = Position.parse("100.1/8264AB")


def kv(value: bytes, key: str = "/k", mod_rev: int = 7) -> KeyValue:
    return KeyValue(key=key, value=value, create_rev=1, mod_rev=mod_rev)


BARRIER = Barrier(epoch=5, position=AT)

RECORDS = [
    ChangefeedInfo(
        configuration=Configuration.model_validate(
            {
                "id": "orders",
                "source": "mongodb://u:${env:P}@h/",
                "sink": "mongodb://h2",
                "start": "1795224774.9",
                "filter": {"tables": ["shop.*"]},
                "routes": [{"from": "shop.*", "to": "dr.*"}],
                "dead_letter": "sluice.rejected",
            }
        ),
        created_at=NOW,
        resume_from=AT,
    ),
    ChangefeedStatus(lifecycle=Lifecycle(), checkpoint=AT, resolved=AT, info_version=1, epoch=7),
    ChangefeedStatus(
        taken_in_at=frozenset({AT, Position.parse("9.1")}),
        tables=(TablePattern.parse("*.*"), TablePattern.parse("!shop.tmp_*")),
        info_version=1,
        epoch=7,
    ),
    NodeRecord(
        id=NodeId("a-1"),
        name="a",
        admin_address="h:1",
        roles=frozenset({Role.OWNER, Role.PROCESSOR}),
        version="0.1.0",
        started_at=NOW,
    ),
    BARRIER,
    PositionReport(
        run=1, barrier_rev=3, assignment_rev=4, checkpoint=AT, exceptions={TableId("aa"): Position.parse("9.1")}
    ),
    TableSchema(
        id=TableId("aa"),
        name=TableName("shop", "orders.2026"),
        options=Document.of({"validator": {"n": 1}}),
        indexes=(Document.of({"v": 2, "key": {"_id": 1}, "name": "_id_"}),),
        valid_from=AT,
    ),
    DdlRecord(
        event=DdlEvent(position=AT, type=DdlType.CREATE, db="shop", table=TableName("shop", "orders")),
        scope=Scope(names=frozenset({TableName("shop", "orders")}), databases=frozenset({"b", "a"})),
        state=DdlState.EXECUTING,
        before=Observation(
            tables={
                TableName("shop", "x"): None,
                TableName("shop", "y"): ObservedTable(uuid="ff", options=Document.of({}), indexes=()),
            }
        ),
        seen_at=NOW,
    ),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_records_survive_etcd(record: object) -> None:
    assert decode(type(record), kv(encode(record))) == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_values_are_json_objects_with_a_version(record: object) -> None:
    assert json.loads(encode(record))["v"] == 1


def test_the_tables_that_a_barrier_holds_are_not_written() -> None:
    barrier = Barrier(epoch=1, position=AT, held={TableId(f"{n:032x}"): AT for n in range(10_000)})
    assert decode(Barrier, kv(encode(barrier))) == Barrier(epoch=1, position=AT)


def test_fields_of_a_newer_minor_version_are_left_out() -> None:
    fields = json.loads(encode(BARRIER)) | {"invented_later": 1}
    assert decode(Barrier, kv(json.dumps(fields).encode())) == BARRIER


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b'{"v":2}', "upgrade this node"),
        (b'{"position":"1.1"}', 'with a version "v"'),
        (b"[]", 'with a version "v"'),
        (b"\xff", 'with a version "v"'),
        (b'{"v":1,"epoch":"x"}', "not a Barrier"),
    ],
)
def test_a_value_that_cannot_be_read_is_named_with_its_key_and_the_reason(value: bytes, says: str) -> None:
    with pytest.raises(RecordUnreadable, match=f"/sluice/x.*{says}"):
        decode(Barrier, kv(value, key="/sluice/x"))


@settings(max_examples=200)
@given(positions, positions)
def test_ddl_keys_sort_as_their_positions_do(one: Position, other: Position) -> None:
    assert (LAYOUT.ddl(ORDERS, one).encode() < LAYOUT.ddl(ORDERS, other).encode()) == (one < other)


@given(tables)
def test_any_table_id_is_one_key_below_its_group(table: TableId) -> None:
    key = LAYOUT.schema(ORDERS, table)
    assert key.rpartition("/")[0] + "/" == LAYOUT.schemas(ORDERS)
    assert child(key, LAYOUT.schemas(ORDERS)) == table


def test_a_cluster_or_changefeed_name_cannot_reach_into_another() -> None:
    assert not Layout("a/b").root.startswith(Layout("a").root)
    assert not LAYOUT.info(ChangefeedId("a/info")).startswith(LAYOUT.changefeed(ChangefeedId("a")))
