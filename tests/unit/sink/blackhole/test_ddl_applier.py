from __future__ import annotations

from changefeed.documents.document import EMPTY
from changefeed.records.ddl import Observation
from changefeed.table import TableName
from sink.blackhole import BlackholeDdlApplier
from sink.ddl import CreateTable, DdlApplier, DropTables, Skip, names_of

A = TableName("shop", "a")


def test_any_ddl_is_done_however_often() -> None:
    applier: DdlApplier = BlackholeDdlApplier()
    for ddl in (CreateTable(name=A, options=EMPTY), CreateTable(name=A, options=EMPTY), DropTables(names=(A,))):
        before = applier.observe(names_of(ddl))
        assert before == Observation(tables={A: None})
        assert applier.apply(ddl, before) == ""


def test_a_skip_says_why() -> None:
    assert BlackholeDdlApplier().apply(Skip(note="outside"), Observation(tables={})) == "outside"
