"""Rows that go one by one have time each, however many there are: a target that answers is not taken for one that is away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import bson
import pytest
from pymongo.errors import NetworkTimeout

from changefeed.cluster_time import ClusterTime
from changefeed.event import RowType
from changefeed.table import TableId, TableName
from sink.mongodb import commander
from sink.mongodb.connection import Client
from sink.mongodb.rows.row_writer import MongoRowWriter, RowWriterOptions
from sink.row import RowChange, SourceRow, TargetTable, WriteResult
from tests.unit.processor.task.rows.unique_target import Row, UniqueTarget

_COMMAND_SECONDS = 0.06
_RETRY_SECONDS = 3.0
_ROWS = 120
"""Twice as many as there would be time for."""
_NAME = TableName("shop", "rows")


class SlowTarget(UniqueTarget):
    """Each command takes a while of a virtual clock, and does not end if it has less time than that."""

    def __init__(self, rows: Mapping[Any, Row]) -> None:
        super().__init__(rows)
        self.now = 100.0

    def command(self, command: Mapping[str, Any], **options: object) -> dict[str, Any]:
        self.now += _COMMAND_SECONDS
        if command.get("writeConcern", {}).get("wtimeout", 2_000) < 500 * _COMMAND_SECONDS:
            raise NetworkTimeout("timed out")
        return super().command(command, **options)


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> SlowTarget:
    target = SlowTarget({})
    monkeypatch.setattr(commander, "time", SimpleNamespace(monotonic=lambda: target.now, sleep=lambda _: None))
    return target


def _change(key: str, order: int, fields: Row | None = None) -> RowChange:
    """Without fields: a delete."""
    table = TargetTable(id=TableId("ab" * 16), source=_NAME, name=_NAME, ordered=True)
    kind, update = RowType.DELETE, None
    if fields is not None:
        kind, update = RowType.UPDATE, bson.encode({"updatedFields": fields, "removedFields": []})
    time = ClusterTime(order, 1).to_int()
    return RowChange(table, kind, bson.encode({"_id": key}), None, update, time, b"82")


def _written(
    target: SlowTarget, changes: Sequence[RowChange], *, replay: bool, repaired: Row | None = None
) -> WriteResult:
    def fetch(change: RowChange) -> SourceRow:
        return SourceRow(bson.encode({**bson.decode(change.key), **(repaired or {})}), ClusterTime(500, 1))

    options = RowWriterOptions(retry_for=timedelta(seconds=_RETRY_SECONDS))
    return MongoRowWriter(cast("Client", target), permit=lambda: 60.0, options=options, fetch=fetch).write(
        changes, replay=replay
    )


def test_rows_that_wait_for_values_of_others(target: SlowTarget) -> None:
    numbers = range(_ROWS)
    target.rows = {f"old{n}": {"_id": f"old{n}", "u": n} for n in numbers} | {
        f"new{n}": {"_id": f"new{n}"} for n in numbers
    }
    takes = [_change(f"new{n}", n, {"u": n}) for n in numbers]
    gives = [_change(f"old{n}", _ROWS + n) for n in numbers]
    _written(target, [*takes, *gives], replay=True)
    assert target.rows == {f"new{n}": {"_id": f"new{n}", "u": n} for n in numbers}


def test_rows_whose_changes_fit_only_together(target: SlowTarget) -> None:
    """What is between belongs to another row by now."""
    numbers = range(_ROWS)
    target.rows = {f"a{n}": {"_id": f"a{n}", "u": f"x{n}"} for n in numbers} | {"b": {"_id": "b", "u": "taken"}}
    changes = [_change(f"a{n}", 2 * n + step, {"u": u}) for n in numbers for step, u in enumerate(("taken", f"y{n}"))]
    _written(target, changes, replay=True)
    assert [target.rows[f"a{n}"]["u"] for n in numbers] == [f"y{n}" for n in numbers]


@pytest.mark.parametrize("replay", [True, False])
def test_rows_that_are_repaired(target: SlowTarget, replay: bool) -> None:
    changes = [_change(f"a{n}", n, {"v": n}) for n in range(_ROWS)]
    result = _written(target, changes, replay=replay, repaired={"v": 7})
    assert result.tally.repaired == _ROWS
    assert target.rows == {f"a{n}": {"_id": f"a{n}", "v": 7} for n in range(_ROWS)}


def test_rows_that_are_as_at_the_source(target: SlowTarget) -> None:
    target.rows = {f"a{n}": {"_id": f"a{n}", "v": 7} for n in range(_ROWS)}
    changes = [_change(f"a{n}", n, {"v.deep": n}) for n in range(_ROWS)]
    result = _written(target, changes, replay=True, repaired={"v": 7})
    assert (result.tally.repaired, result.tally.skipped) == (0, _ROWS)
