"""DDLs of a table that is copied beside the target's: what becomes of the two."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import EMPTY
from changefeed.errors import DdlUnsupported
from changefeed.event import DdlEvent, DdlType
from changefeed.position import Position
from changefeed.records.ddl import Observation, ObservedTable
from changefeed.table import TableId, TableName
from sink.ddl import (
    CreateIndexes,
    DownstreamDdl,
    DropTables,
    RenameTable,
    Routing,
    Together,
    downstream,
    dropped_instead,
    names_of,
    parts_of,
)

ORDERS, SALES, ITEMS = (TableName("shop", coll) for coll in ("orders", "sales", "items"))
COPY = TableName("dr", "sluice.recopy.1")
OBSERVED = ObservedTable(uuid="1" * 32, options=EMPTY, indexes=())


def dr(name: TableName) -> TableName:
    return TableName("dr", name.coll)


def routing(*others: TableName) -> Routing:
    """`orders` is copied beside."""
    tables = {TableId(str(name)): name for name in (ORDERS, *others)}
    return Routing(route=dr, tables=tables, beside={ORDERS: COPY})


def asked(type: DdlType, table: TableName | None, *others: TableName, **more: Any) -> DownstreamDdl:
    event = DdlEvent(position=Position(ClusterTime(100, 1)), type=type, db="shop", table=table, **more)
    return downstream(event, routing(*others))


def test_an_index_concerns_the_copy() -> None:
    assert asked(DdlType.CREATE_INDEXES, ORDERS) == CreateIndexes(name=COPY, indexes=())
    assert asked(DdlType.CREATE_INDEXES, SALES) == CreateIndexes(name=dr(SALES), indexes=())


def test_a_drop_and_a_drop_of_the_database_concern_both() -> None:
    assert asked(DdlType.DROP, ORDERS) == DropTables(names=(dr(ORDERS), COPY))
    assert asked(DdlType.DROP_DATABASE, None, SALES) == DropTables(names=(dr(ORDERS), dr(SALES), COPY))
    assert asked(DdlType.RENAME, ORDERS, renamed_to=TableName("shop", "system.x")) == DropTables(
        names=(dr(ORDERS), COPY)
    )


def test_a_rename_concerns_the_old_table_if_it_is_there() -> None:
    ddl = asked(DdlType.RENAME, ORDERS, renamed_to=SALES, drop_target=TableId("s"))
    assert ddl == RenameTable(name=dr(ORDERS), to=dr(SALES), replaces=True, perhaps=True)
    there = Observation(tables={dr(ORDERS): OBSERVED, dr(SALES): OBSERVED})
    assert parts_of(ddl, there) == (ddl,)
    gone = Observation(tables={dr(ORDERS): None, dr(SALES): OBSERVED})
    assert parts_of(ddl, gone) == (DropTables(names=(dr(SALES),)),)
    alone = asked(DdlType.RENAME, ORDERS, renamed_to=SALES)
    assert parts_of(alone, Observation(tables={dr(ORDERS): None})) == ()


def test_a_rename_over_the_table_drops_its_copy_too() -> None:
    ddl = asked(DdlType.RENAME, SALES, SALES, renamed_to=ORDERS, drop_target=TableId("shop.orders"))
    rename = RenameTable(name=dr(SALES), to=dr(ORDERS), replaces=True)
    assert ddl == Together(parts=(rename, DropTables(names=(COPY,))))
    assert names_of(ddl) == (dr(SALES), dr(ORDERS), COPY)
    assert parts_of(ddl, Observation(tables={dr(SALES): OBSERVED})) == (rename, DropTables(names=(COPY,)))


def test_a_table_that_ends_instead_of_its_rename_takes_its_copy_along() -> None:
    event = DdlEvent(
        position=Position(ClusterTime(100, 1)), type=DdlType.RENAME, db="shop", table=ORDERS, renamed_to=SALES
    )
    assert dropped_instead(event, routing()) == DropTables(names=(dr(ORDERS), COPY))


def test_the_copy_takes_the_tables_place() -> None:
    assert asked(DdlType.EXCHANGE, ORDERS) == RenameTable(name=COPY, to=dr(ORDERS), replaces=True)


def test_the_copy_does_not_take_the_place_of_other_tables_rows() -> None:
    event = DdlEvent(position=Position(ClusterTime(100, 1)), type=DdlType.EXCHANGE, db="shop", table=ORDERS)
    tables = {TableId(str(name)): name for name in (ORDERS, ITEMS)}
    shared = Routing(route=lambda name: TableName("dr", "all"), tables=tables, beside={ORDERS: COPY})
    with pytest.raises(DdlUnsupported, match=r"dr\.all also holds the rows of shop\.items"):
        downstream(event, shared)
