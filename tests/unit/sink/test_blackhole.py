from __future__ import annotations

import bson

from changefeed.documents.document import EMPTY
from changefeed.event import RowType
from changefeed.records.ddl import Observation
from changefeed.table import TableId, TableName
from sink.blackhole import BlackholeDdlApplier, BlackholeRowWriter
from sink.ddl import CreateTable, DdlApplier, DropTables, Skip, names_of
from sink.row import RowChange, RowWriter, TargetTable, WriteResult

A = TableName("shop", "a")


def test_any_ddl_is_done_however_often() -> None:
    applier: DdlApplier = BlackholeDdlApplier()
    for ddl in (CreateTable(name=A, options=EMPTY), CreateTable(name=A, options=EMPTY), DropTables(names=(A,))):
        before = applier.observe(names_of(ddl))
        assert before == Observation(tables={A: None})
        assert applier.apply(ddl, before) == ""


def test_a_skip_says_why() -> None:
    assert BlackholeDdlApplier().apply(Skip(note="outside"), Observation(tables={})) == "outside"


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
