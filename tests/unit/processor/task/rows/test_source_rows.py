from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import bson
import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.config.tables.filter import Filter
from changefeed.errors import SourceUnavailable
from changefeed.event import RowType
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema
from processor.task.job import Held
from processor.task.rows.gate import RowFilter
from processor.task.rows.source_rows import SourceRows
from schema_store.versions import SchemaVersions
from sink.row import RowChange, TargetTable
from source.tables.row_read import Row

T1, T2, U, V, OTHER = (TableId(letter * 32) for letter in "abcde")
NAME, KEY, NOW = TableName("shop", "a"), bson.encode({"_id": 1}), ClusterTime(120, 0)
SCHEMAS = SchemaVersions.of(
    TableSchema(id=table, name=TableName("shop", f"t_{table[0]}"), valid_from=Position(ClusterTime(1, 0)), uuids=uuids)
    for table, uuids in ((T1, ()), (OTHER, (V,)))
)


@dataclass
class Cluster:
    """One table has the name. It finds others by their UUIDs."""

    named: TableId
    rows: Mapping[TableId, bytes]
    arrived_late: bool = False

    def row(
        self,
        table: TableName,
        uuids: Sequence[TableId],
        key: bytes,
        *,
        not_before: ClusterTime,
        of_another: Callable[[TableId], bool],
    ) -> Row | None:
        found = None if self.arrived_late else next((self.rows[uuid] for uuid in uuids if uuid in self.rows), None)
        if found is None and not of_another(self.named):
            if self.named not in uuids:
                raise SourceUnavailable("nobody has heard of it")
            found = self.rows[self.named]
        return None if found is None else Row(found, NOW)


def fetched(cluster: Cluster, held: Held | None = None) -> bytes | None:
    rows = SourceRows(cluster, SCHEMAS, RowFilter(Filter()), lambda name: None)
    rows.held = held or Held()
    table = TargetTable(id=T1, source=NAME, name=NAME)
    change = RowChange(table, RowType.UPDATE, KEY, None, None, ClusterTime(100, 0).to_int(), b"")
    row = rows.fetch(change)
    return None if row is None else row.document


def test_a_row_is_read_by_the_uuid_that_an_open_ddl_gives_its_table() -> None:
    row = bson.encode({"_id": 1, "n": 2})
    renamed = Cluster(named=U, rows={T2: row, U: bson.encode({"_id": 1})})
    assert fetched(renamed, Held(tables=frozenset({T1, T2, U}), uuids={T2: T1})) == row


def test_a_table_is_gone_if_its_name_is_that_of_another_one() -> None:
    row = bson.encode({"_id": 1})
    assert fetched(Cluster(named=U, rows={U: row}), Held(tables=frozenset({T1, U}))) is None
    assert fetched(Cluster(named=T2, rows={T2: row}), Held(tables=frozenset({T2}), uuids={T2: OTHER})) is None
    assert fetched(Cluster(named=OTHER, rows={OTHER: row})) is None
    assert fetched(Cluster(named=V, rows={V: row})) is None


def test_a_uuid_that_its_table_gets_while_it_is_looked_for_is_not_another_one_s() -> None:
    """The source looked by UUID before, and by name behind it."""
    row = bson.encode({"_id": 1})
    arrived = Cluster(named=T2, rows={T2: row}, arrived_late=True)
    assert fetched(arrived, Held(tables=frozenset({T1, T2}), uuids={T2: T1})) == row


def test_a_row_is_not_read_from_a_table_of_which_nobody_has_heard() -> None:
    with pytest.raises(SourceUnavailable):
        fetched(Cluster(named=U, rows={U: bson.encode({"_id": 1})}))
