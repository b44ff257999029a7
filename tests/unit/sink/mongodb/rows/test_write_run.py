"""What a run concludes from answers that a real target gives rarely."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument

from changefeed.errors import Divergence
from changefeed.event import RowType
from changefeed.table import TableId, TableName
from sink.mongodb.commander import Commander, Send, TargetReply
from sink.mongodb.rows.batch_sender import BatchSender, SideBySide
from sink.mongodb.rows.bulk_plan import Batch, CommandSizes, Limits
from sink.mongodb.rows.doubts import RunTables
from sink.mongodb.rows.placing import Placing
from sink.mongodb.rows.row_look import RowsAtSource
from sink.mongodb.rows.rows_ahead import RowsAhead
from sink.mongodb.rows.write_run import TargetLink, WriteRun
from sink.row import RowChange, TargetTable, WriteResult

_TAKEN = {"index": 0, "code": 11000, "errmsg": "u is taken", "keyPattern": {"u": 1}}
_OF_ANOTHER_SHAPE = {"index": 0, "code": 28, "errmsg": "Cannot create field 'b' in element {a: 1}"}


class Answers(Commander):
    """Gives the answers in turn. The permit and the retries of the real one are not needed."""

    def __init__(self, *answers: tuple[Mapping[str, Any], bool]) -> None:
        self._answers: Iterator[tuple[Mapping[str, Any], bool]] = iter(answers)
        self.retries = 0
        self.waits: list[float] = []

    def begin(self) -> None:
        pass

    go_on = begin

    def send(self, database: str, command: dict[str, Any], doing: str, *, divisible: bool = False) -> TargetReply:
        document, again = next(self._answers)
        return TargetReply(document=document, results=[], again=again)

    def together(self, work: Callable[[Send], None], doing: str) -> None:
        work(lambda database, command: RawBSONDocument(bson.encode(next(self._answers)[0])))

    def found(self, find: tuple[str, dict[str, Any]], doing: str) -> list[RawBSONDocument]:
        return []


def _written(*answers: tuple[Mapping[str, Any], bool]) -> WriteResult:
    """Of one update of a table with a unique index, on its first pass."""
    name = TableName("shop", "rows")
    table = TargetTable(id=TableId("ab" * 16), source=name, name=name, ordered=True)
    update = bson.encode({"updatedFields": {"a.b": 1, "u": 2}, "removedFields": [], "truncatedArrays": []})
    change = RowChange(table, RowType.UPDATE, bson.encode({"_id": 1}), None, update, 1 << 32, b"82")
    commander = Answers(*answers)
    run = WriteRun(
        TargetLink(
            commander=commander,
            limits=lambda: Limits(joined=False),
            sizes=CommandSizes(),
            side_by_side=SideBySide(),
            ahead=RowsAhead(None),
        ),
        Placing(commander, commander, lambda: Limits(joined=False), RowsAtSource()),
        RowsAtSource(),
        RunTables(unfinished=lambda _: True),
    )
    result = run.prepare([change], replay=False)()
    result.add(run.settle())
    return result


def test_a_change_that_waits_after_it_was_sent_twice_may_have_been_applied() -> None:
    """Its first answer was lost. The later changes of the batch, applied then, may have given the row another shape."""
    refused = {"n": 0, "writeErrors": [_TAKEN]}, True
    misfits = {"n": 0, "writeErrors": [_OF_ANOTHER_SHAPE]}, False
    row = {"cursor": {"firstBatch": [{"_id": 1, "a": 1}]}}, False
    replaced = {"n": 1}, False
    assert _written(refused, misfits, row, replaced).tally.skipped == 1


def test_a_change_that_waits_and_was_sent_once_was_not_applied() -> None:
    refused = {"n": 0, "writeErrors": [_TAKEN]}, False
    misfits = {"n": 0, "writeErrors": [_OF_ANOTHER_SHAPE]}, False
    with pytest.raises(Divergence):
        _written(refused, misfits)


def test_a_change_whose_unique_value_is_taken_is_tried_again_behind_the_others() -> None:
    """Another row of the run may give the value up."""
    refused = {"n": 0, "writeErrors": [_TAKEN]}, False
    result = _written(refused, ({"n": 1}, False))
    assert not result.tally.repaired
    assert not result.unsettled


class Turns:
    def __init__(self, *, shared: bool) -> None:
        self.shared = shared

    def rest(self, busy_seconds: float) -> None:
        raise AssertionError("nothing is sent")


@pytest.mark.parametrize(("shared", "most"), [(True, 1), (False, sys.maxsize)])
def test_slow_updates_have_short_commands_where_the_target_is_shared(*, shared: bool, most: int) -> None:
    name = TableName("shop", "rows")
    table = TargetTable(id=TableId("ab" * 16), source=name, name=name)
    update = bson.encode({"updatedFields": {"a": 1}, "removedFields": [], "truncatedArrays": []})
    change = RowChange(table, RowType.UPDATE, bson.encode({"_id": 1}), None, update, 1 << 32, b"82")
    sizes = CommandSizes()
    sizes.took(table.id, 1, 10, 0.06)
    assert BatchSender(Answers(), sizes, Turns(shared=shared)).most_of(Batch([change], ordered=False)) == most
