"""Event types carry the change stream's own names."""

from __future__ import annotations

from changefeed.cluster_time import ClusterTime
from changefeed.event import DdlEvent, DdlType, RowType
from changefeed.position import Position
from changefeed.table import TableName

_POSITION = Position(ClusterTime(100, 1))


def test_a_ddl_reads_as_what_happened_where() -> None:
    rename = DdlEvent(
        position=_POSITION,
        type=DdlType.RENAME,
        db="shop",
        table=TableName("shop", "orders"),
        renamed_to=TableName("shop", "old_orders"),
    )

    assert str(rename) == "rename shop.orders to shop.old_orders at 100.1"
    assert str(DdlEvent(position=_POSITION, type=DdlType.DROP_DATABASE, db="shop")) == "dropDatabase shop at 100.1"


def test_no_operation_is_both_row_event_and_ddl() -> None:
    assert not {type_.value for type_ in RowType} & {type_.value for type_ in DdlType}
