from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from changefeed.config.configuration import Configuration
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord, DdlState, Scope
from changefeed.records.node import AssignedTable, Assignment
from changefeed.table import TableName, TableSchema
from processor.copy.copy_inputs import CopySurroundings, inputs_of
from processor.lanes.lane_plan import LaneLimits
from schema_store.versions import SchemaVersions
from tests.unit.processor.held_jobs import A, at

NOW = datetime(2026, 11, 30, tzinfo=UTC)
REFUSED = ErrorReport(code="ddl_refused", message="no", retryable=False, at=NOW)


def index(seconds: int, *, begun: bool = False, refused: bool = False) -> DdlRecord:
    table = TableName("shop", "a")
    return DdlRecord(
        event=DdlEvent(position=at(seconds), type=DdlType.CREATE_INDEXES, db="shop", table=table, id=A),
        scope=Scope(tables=frozenset({A})),
        state=DdlState.EXECUTING if begun else DdlState.PENDING,
        refused=REFUSED if refused else None,
        seen_at=NOW,
    )


@pytest.mark.parametrize(
    ("records", "begun"),
    [
        ([index(6)], None),
        ([index(6), index(7, begun=True)], at(7)),
        ([index(6, refused=True), index(7, begun=True)], None),
        ([index(9, begun=True)], None),
    ],
)
def test_an_index_counts_as_begun_below_the_one_that_holds_unless_a_refused_one_comes_first(
    records: list[DdlRecord], begun: Position | None
) -> None:
    """The table is held at 9, and nothing of it is there yet."""
    orders = SimpleNamespace(
        barrier=Barrier(epoch=1, position=at(20), held={A: at(9)}),
        assignment=Assignment(tables={A: AssignedTable(start=at(1), copy=True)}),
    )
    configuration = Configuration.parse({"id": "f", "source": "mongodb://a", "sink": "mongodb://b"})
    stored: Any = SimpleNamespace(configuration=configuration, orders=orders, ddls=lambda: records)
    lanes: Any = SimpleNamespace(checkpoint_of=lambda table: at(1), busy=lambda table: False)
    schema = TableSchema(id=A, name=TableName("shop", "a"), valid_from=at(1))
    around = CopySurroundings(
        stored=stored, schemas=SchemaVersions.of([schema]), lanes=lanes, limits=LaneLimits(), apart=False
    )
    found = inputs_of(None, schema, around, [], 1)
    assert (found.index_begun, found.index_to_come) == (begun, records[0].position < at(9))
