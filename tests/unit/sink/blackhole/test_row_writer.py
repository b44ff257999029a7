from __future__ import annotations

import bson

from changefeed.event import RowType
from changefeed.table import TableId, TableName
from sink.blackhole import BlackholeRowWriter
from sink.row import RowChange, RowWriter, TargetTable, WriteResult

_NAME = TableName("shop", "orders")
_TABLE = TargetTable(id=TableId("ab" * 16), source=_NAME, name=_NAME)


def test_every_row_is_accepted() -> None:
    key, document = bson.encode({"_id": 1}), bson.encode({"_id": 1, "v": 2})
    insert = RowChange(_TABLE, RowType.INSERT, key, document, None, 1, b"82")
    delete = RowChange(_TABLE, RowType.DELETE, key, None, None, 2, b"82")
    writer: RowWriter = BlackholeRowWriter()
    run = writer.begin(lambda _: False)
    result = run.prepare([insert, insert, delete], replay=False)()
    result.add(run.settle())
    writer.close()
    assert result == WriteResult()
