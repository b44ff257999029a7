"""The tables of a changefeed, as users see them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from admin.cluster_reader import ClusterReader, tables_of
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId, TableName, TableSchema
from coordination.etcd.memory import MemoryEtcd
from coordination.etcd.protocol import Put
from coordination.layout import Layout, encode
from coordination.mirror import Mirror
from owner import recopy

ID, TABLE = ChangefeedId("orders"), TableId("ab" * 16)
LAYOUT, NOW = Layout("test"), datetime(2026, 11, 26, tzinfo=UTC)


def at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 1))


def seen(*records: DdlRecord) -> list[TableName]:
    etcd = MemoryEtcd()
    configuration = Configuration.parse({"id": ID, "source": "mongodb://a", "sink": "mongodb://b"})
    written: dict[str, object] = {
        LAYOUT.info(ID): ChangefeedInfo(configuration=configuration, created_at=NOW),
        LAYOUT.status(ID): ChangefeedStatus(start=at(1), checkpoint=at(10), run=1, info_version=1, epoch=1),
        LAYOUT.schema(ID, TABLE): _TABLE,
        **{LAYOUT.ddl(ID, record.position): record for record in records},
    }
    for key, record in written.items():
        etcd.txn([], [Put(key, encode(record))])
    mirror = Mirror(etcd.connect(), LAYOUT.root)
    while mirror.poll(timedelta(0)):
        pass
    with ClusterReader(mirror, LAYOUT).read() as view:
        return [schema.name for schema in tables_of(view.changefeed(ID)).living]


_TABLE = TableSchema(id=TABLE, name=TableName("shop", "orders"), valid_from=at(1))


def test_a_table_that_is_copied_anew_is_there_at_each_of_its_steps() -> None:
    leave, enter = recopy.begun(_TABLE, TableName("shop", "orders"), (at(11), at(12)), at(10), NOW)
    left, entered = (replace(record, state=DdlState.SKIPPED) for record in (leave, enter))
    assert seen() == seen(leave, enter) == seen(left, enter) == seen(left, entered) == [_TABLE.name]
