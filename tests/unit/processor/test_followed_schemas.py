"""Assigned tables that no base contains, found without looking at all tables each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema
from processor.followed_schemas import Strangers
from schema_store.schema_base import SchemaBase

_TABLES = st.frozensets(st.sampled_from([TableId(letter * 32) for letter in "abcdef"]))


def based(tables: frozenset[TableId]) -> SchemaBase:
    at = Position(ClusterTime(1, 0))
    return SchemaBase.of(TableSchema(id=table, name=TableName("s", table), valid_from=at) for table in tables)


@given(st.lists(_TABLES.map(based), min_size=1, max_size=2), st.lists(st.tuples(st.booleans(), _TABLES), max_size=6))
def test_they_are_the_assigned_tables_without_those_of_the_base(
    bases: list[SchemaBase], stages: list[tuple[bool, frozenset[TableId]]]
) -> None:
    strangers = Strangers()
    for last, assigned in stages:
        base = bases[-1 if last else 0]
        strangers = strangers.follow(base, assigned)
        assert strangers.tables == assigned - set(base.ids)
        assert strangers.follow(base, assigned) is strangers
